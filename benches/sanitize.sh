#!/bin/sh
# sanitize.sh WARPLOOM OUT [EXAMPLES]: compute-sanitizer's four tools over every example that compiles, over products in
# each layout (recommended ones and those of each kind on tensor cores) and at ragged sizes, and over kernels damaged on
# purpose, of which a tool must find what was done. Each runs once, at a small size, with its result checked.
#
# WARPLOOM is the binary: a static one needs nothing of the machine but its driver and compute-sanitizer. OUT is a folder
# for the table and a log of each run. Prints the table, and fails where a tool finds anything in a sound kernel, a result
# is wrong, or a damage is not found. JOBS processes run at a time (4). CHIP is the device's (sm_90a): every example
# that compiles for it is run, whatever chip it was written for.
set -eu
tools="memcheck racecheck initcheck synccheck"

# one OUT TOOL NAME FINDER ARGUMENTS..: runs a subject under a tool; what came of it goes to NAME.TOOL.status.
if [ "${1:-}" = one ]; then
    log=$3/$5.$4
    warploom=$2 tool=$4
    shift 6
    status=0
    compute-sanitizer --tool "$tool" --error-exitcode 86 "$warploom" run "$@" --once --device 0 > "$log.log" 2>&1 || status=$?
    # Without its summary the tool did not come to its end, whatever it returned.
    grep -q 'SUMMARY: ' "$log.log" || status=unfinished
    echo "$status" > "$log.status"
    exit 0
fi

[ $# -ge 2 ] || { sed -n '2,9s/^# //p' "$0"; exit 2; }
warploom=$1 out=$2 chip=${CHIP:-sm_90a} examples=${3:-$(dirname "$0")/../examples}
export PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
command -v compute-sanitizer > /dev/null || { echo "compute-sanitizer is not on the PATH" >&2; exit 4; }
mkdir -p "$out"
rm -f "$out"/*.log "$out"/*.status

# product NAME ARGUMENTS: the line of a product that compiles.
product() {
    name=$1_$(echo "$2" | sed 's/.*--dtype \([a-z0-9]*\) --layout \([A-Z]*\).*/\1_\2/')
    # shellcheck disable=SC2086
    if refusal=$("$warploom" dump $(echo "$2" | sed 's/ --small//') --emit ptx 2>&1 > /dev/null); then
        echo "$name none $2"
    else
        echo "$name is left out: $refusal" | head -1 >&2
    fi
}

# A line for each subject: its name, the tool that must find something (or none), and what `warploom run` is given.
{
    for file in "$examples"/*.loom; do
        name=$(basename "$file" .loom)
        if refusal=$("$warploom" dump "$file" --target "$chip" --emit ptx 2>&1 > /dev/null); then
            echo "$name none \"$file\" --small"
        else
            echo "$name is left out: $refusal" | head -1 >&2
        fi
    done
    for dtype in f32 f64 f16 bf16 s8 s4; do
        for layout in NN NT TN TT; do
            product recommended "--gemm 4096x4096x4096 --dtype $dtype --layout $layout --small"
        done
    done
    for dtype in f16 bf16 s8 s4; do
        product ragged "--gemm 127x129x65 --dtype $dtype --layout NN"
        for kind in wmma mma; do
            product "$kind" "--gemm 4096x4096x4096 --dtype $dtype --layout NT --kind $kind --small"
        done
    done
    echo "a_barrier_less racecheck \"$examples/window_sum_cooperative.loom\" --mutate \"barrier removed\""
    echo "a_block_more memcheck \"$examples/vec_add.loom\" --mutate \"blockIdx.x of 9\""
} > "$out/subjects"
for tool in $tools; do sed "s/^/$tool /" "$out/subjects"; done |
    xargs -P "${JOBS:-4}" -L 1 "$0" one "$warploom" "$out"

# What a status says of a subject in which the tool must find something (yes) or nothing (no).
verdict() {
    case $1:$2 in
        0:no) echo clean ;;
        86:yes) echo found ;;
        86:no) echo ERRORS ;;
        *:no) echo "FAILED:$1" ;;
        *:yes) echo "MISSED:$1" ;;
    esac
}

{
    printf '%-28s' subject
    printf '%-20s' $tools
    echo
    while read -r name finder _; do
        printf '%-28s' "$name"
        for tool in $tools; do
            status=$(cat "$out/$name.$tool.status" 2> /dev/null || echo unfinished)
            case $finder in
                none) word=$(verdict "$status" no) ;;
                "$tool") word=$(verdict "$status" yes) ;;
                # What else is wrong with a damaged kernel does not matter.
                *) word="-" ;;
            esac
            printf '%-20s' "$word"
        done
        echo
    done < "$out/subjects"
} > "$out/table.txt"
cat "$out/table.txt"
if grep -Eq 'ERRORS|MISSED|FAILED' "$out/table.txt"; then
    echo "not as expected: the logs are in $out" >&2
    exit 1
fi
