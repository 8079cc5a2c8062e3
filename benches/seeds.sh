#!/bin/sh
# The searches of four published tutorials, repeated and printed as their tables:
#   tiling        "TVM Matrix Multiplication Optimization", step 2: block tiles, thread tiles, loop patterns; all 150
#                 configurations of its lists, where the blog counts 138
#   autotvm       "TVM: GEMM GPU Optimization": three schedules by hand, AutoTVM's 36 configurations
#   mlc           the MLC course's chapter on GPUs: two schedules by hand, a search of 64 trials
#   tensor-cores  "How to optimize matmul with Auto TensorCore CodeGen": 288 configurations of each of f16, s8, s4, b1
# With a second argument N also the candidates of N random products: the share of the best after 1 to 32 candidates, and seconds a product.
#
#   benches/seeds.sh DIR [N]             DEVICE=0 on the first GPU (without it: the first GPU, or predicted cycles if there is none)
#   DEVICE=none benches/seeds.sh DIR     predicted cycles; a small instance of each configuration is checked on the simulator
#
# DIR gets NAME.txt, the tables, and DIR/records, the trials. The same command continues records, and only prints the tables once all trials
# are there. SEED draws the random products (1), WARPLOOM is the binary, JOBS the number of processes that compile.
set -eu
[ $# -ge 1 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
out=$1 products=${2:-0}
warploom=${WARPLOOM:-target/release/warploom}
options=${DEVICE:+--device $DEVICE}${JOBS:+ --jobs $JOBS}${DEADLINE:+ --deadline $DEADLINE}
mkdir -p "$out/records"

# kept NAME ARGUMENTS..: the tables go to NAME.txt and to standard output. A status of 1 says that a trial was wrong or failed.
status=0
kept() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$warploom" "$@" $options > "$out/$name.txt" 2> "$out/$name.log" || {
        code=$?
        echo "$name ended with status $code: $(tail -n 1 "$out/$name.log")" >&2
        status=1
    }
    echo "== $name"
    cat "$out/$name.txt"
}

for name in tiling autotvm mlc tensor-cores; do
    kept "$name" sweep "$name" --record "$out/records"
done
if [ "$products" -gt 0 ]; then
    kept random tune --random "$products" --seed "${SEED:-1}" --record "$out/records/random"
fi
exit $status
