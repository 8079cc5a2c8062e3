//! What TVM reaches with the schedules of courses and blogs, as a share of cuBLAS' speed.

/// A schedule at a size with TVM's ratio to cuBLAS f32: TVM 0.27 through NVRTC on an H200, in one run with cuBLAS.
/// In ten-thousandths. `step2` is the blog's step 2 with the zero written inside the k loop.
const TVM: [(&str, [i64; 3], u32); 15] = [
    ("gpu_naive", [1024, 512, 2048], 60),
    ("gpu_v1", [1024, 512, 2048], 132),
    ("gpu_v2", [1024, 512, 2048], 129),
    ("gpu_v3", [1024, 512, 2048], 683),
    ("mlc_local", [1024, 1024, 1024], 1714),
    ("mlc_shared", [1024, 1024, 1024], 3704),
    ("mlc_shared", [2048, 2048, 2048], 3623),
    ("mlc_shared", [4096, 4096, 4096], 3580),
    ("d2l", [1024, 1024, 1024], 5440),
    ("d2l", [2048, 2048, 2048], 4342),
    ("d2l", [4096, 4096, 4096], 4354),
    ("step2", [512, 512, 512], 1156),
    ("step2", [1024, 1024, 1024], 2131),
    ("step2_init", [512, 512, 512], 1176),
    ("step2_init", [1024, 1024, 1024], 1841),
];

/// TVM's ratio to cuBLAS with the same schedule at the same size, where it was measured.
pub fn tvm(name: &str, sizes: &[i64]) -> Option<f64> {
    TVM.iter().find(|(n, s, _)| *n == name && s == sizes).map(|(_, _, ratio)| f64::from(*ratio) / 1e4)
}
