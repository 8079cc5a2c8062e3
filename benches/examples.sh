#!/bin/sh
# Writes the examples at sizes that fill a device, which benches/beside_torch.py times: the same steps as in examples/, with other extents in
# the program. On the machine with the GPU: python3 benches/beside_torch.py DIR/* --json RESULT
#   benches/examples.sh DIR [EXAMPLE]
set -eu
out=$1 only=${2:-}
warploom=${WARPLOOM:-target/release/warploom}
mkdir -p "$out"

# sized NAME EXAMPLE TARGET OLD=NEW..: the numbers OLD in the program become NEW; divisors (`k // 128`) stay as they are.
sized() {
    name=$1 example=$2 target=$3
    shift 3
    [ -z "$only" ] || [ "$only" = "$example" ] || return 0
    script='s,// ([0-9]+),// K\1K,g'
    for pair; do
        script="$script;s/(^|[^A-Za-z0-9_.])${pair%=*}([^A-Za-z0-9_.]|\$)/\\1K${pair#*=}K\\2/g"
    done
    sed -E -e "/^#/b" -e "1,/^target/{$script;s/K([0-9]+)K/\\1/g;s/^target.*/target $target/}" "examples/$example.loom" |
        "$warploom" dump - --out "$out/$name" >/dev/null
}

sized batched_matvec-64x4096x4096 batched_matvec sm_90 3=64 64=4096 1024=4096
sized batched_matvec-1024x512x512 batched_matvec sm_90 3=1024 64=512 1024=512
sized w4a16-4096 w4a16 sm_90 128=4096 192=4096 256=4096 2=32
sized w4a16-256x8192x8192 w4a16 sm_90 128=256 192=8192 256=8192 2=64
sized attention-64x1024x64 attention sm_90 2=64 128=1024 256=1024
sized attention-64x512x64 attention sm_90 2=64 128=512 256=512
for size in 4096 8192; do
    sized "mlp-$size" gemm_bias_gelu_residual sm_90a 128=$size 512=$size 320=$size
    "$warploom" dump --gemm $size --dtype f16 --layout NT --target sm_90a --out "$out/gemm-$size" >/dev/null
done
sized conv-32x56x56x128 conv_wgmma sm_90a
sized split_k-1024x512x2048 split_k sm_90
sized transpose-8192 transpose_simt sm_90 1088=8192 1216=8192
sized transpose_tma-8192 transpose_tma_f16 sm_90 1000=8192 1096=8192
