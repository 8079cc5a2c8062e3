"""Programs that several test files run."""

# The rows of M are 16 bytes of 4-bit integers.
NIBBLES = """program nibbles
  size M in 1..=16
  input X u4[M, 32]
  Z: output Z[i M, j 32] s32 = s32(X[i, j])
target sm_80
bind i blockIdx.x; bind j threadIdx.x
"""
