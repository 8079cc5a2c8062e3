#!/bin/sh
# Writes the kernels over rows that benches/beside_torch.py times: softmax, layernorm and rmsnorm with recommended steps, and plain copies
# of as many bytes as each of them moves. On the machine with the GPU: python3 benches/beside_torch.py DIR/* --json RESULT
#   benches/rows.sh DIR [TARGET] [TYPE]
set -eu
out=$1 target=${2:-sm_90} dtype=${3:-f16}
warploom=${WARPLOOM:-target/release/warploom}
sizes="8192x4096 524288x64 65536x1000 1024x32768 2048x131072 132x131072 132x32768 132x4096 132x1000 132x64 16x131072 16x32768 16x4096
16x1000 16x64 1x131072 1x32768 1x4096 1x1000 1x64"
mkdir -p "$out"
for size in $sizes; do
    for kind in softmax layernorm rmsnorm; do
        "$warploom" dump --rows $kind --size "$size" --dtype "$dtype" --target "$target" --out "$out/$kind-$size" >/dev/null
    done
    rows=${size%x*} columns=${size#*x} piece=8
    [ "$dtype" != f32 ] || piece=4
    # As many bytes as softmax, layernorm (with G and B) and rmsnorm (with G) move.
    for copied in "$size" "$((rows + 1))x$columns" "$((2 * rows + 1))x$((columns / 2))"; do
        "$warploom" dump - --out "$out/copy-$copied" >/dev/null <<END
program copy
input X $dtype[${copied%x*}, ${copied#*x}]
output Y[i ${copied%x*}, j ${copied#*x}] $dtype = X[i, j]
target $target
fuse i j -> e
split e ? 256 $piece -> eb et ev
vectorize ev
bind et threadIdx.x
bind eb blockIdx.x
END
    done
done
