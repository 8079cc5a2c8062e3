//! Convolutions by implicit GEMM: the schedule of `examples/conv_wgmma.loom` at small sizes, with edges that cut tiles, other filters and
//! paddings, and the simpler form whose stage holds the pixels of one (r, s) of the filter.

use crate::cases::examples;
use crate::lower::lowered;
use crate::ptx::agrees;
use warploom::error::Code;
use warploom::loom::Schedule;
use warploom::lower::lower;
use warploom::sim::{Mode, Options, Policy, integers_with, naive_integers};

/// A convolution: stride 1, channels last, as many zeros around the image on each side as `padding` says.
#[derive(Clone, Copy)]
struct Conv {
    images: i64,
    height: i64,
    width: i64,
    inputs: i64,
    outputs: i64,
    filter: i64,
    padding: i64,
    dtype: &'static str,
    /// Images of a tile, which has 8 x 8 pixels of each.
    tile: i64,
}

const EXAMPLE: Conv =
    Conv { images: 32, height: 56, width: 56, inputs: 128, outputs: 128, filter: 3, padding: 1, dtype: "f16", tile: 4 };

/// Small enough for the simulator: 16 input channels, and tiles that the edges cut.
const SMALL: Conv = Conv { images: 2, height: 13, width: 9, inputs: 16, outputs: 64, tile: 2, ..EXAMPLE };

/// As small as a tile that the edges cut in both dimensions.
const SMALLEST: Conv = Conv { height: 5, width: 9, ..SMALL };

impl Conv {
    fn out(&self) -> [i64; 2] {
        [self.height, self.width].map(|extent| extent + 2 * self.padding - self.filter + 1)
    }

    /// Rows and columns of pixels of whole tiles.
    fn whole(&self) -> [i64; 2] {
        self.out().map(|extent| (extent + 7) / 8 * 8)
    }

    fn is_ragged(&self) -> bool {
        self.out() != self.whole()
    }

    /// Where an input pixel is inside of X.
    fn inside(&self, y: &str, x: &str) -> String {
        let Conv { height, width, padding, .. } = self;
        let (bottom, right) = (height + padding, width + padding);
        format!("{y} >= {padding} and {y} < {bottom} and {x} >= {padding} and {x} < {right}")
    }

    /// A stage holds rows of pixels for all r: the steps of the example.
    fn rows(&self) -> String {
        let Conv { images, height, width, inputs, outputs, filter, padding, dtype, tile } = *self;
        let ([oh, ow], [h, w]) = (self.out(), self.whole());
        let (padded, row, pixels) = (h + filter - 1, 8 * tile, 64 * tile);
        let map =
            |n: &str, y: &str, x: &str| format!("[{n} // {tile}, {x} // 8, {y} * {row} + {n} % {tile} * 8 + {x} % 8");
        let (pad, y, inlined) = self.padded();
        let swizzle = (2 * inputs).min(128);
        format!(
            "program conv
  input X {dtype}[{images}, {height}, {width}, {inputs}]; input W {dtype}[{outputs}, {filter}, {filter}, {inputs}]
  P: P[n {images}, y {padded}, x {w}, s {filter}, c {inputs}] {dtype} = select({inside}, X[n, y - {padding}, x + s - {padding}, c], 0)
  mma: acc[n {images}, y {h}, x {w}, k {outputs}] f32 = sum(r {filter}, s {filter}, c {inputs}) f32(P[n, y + r, x, s, c])*f32(W[k, r, s, c])
  out: output Y[n {images}, y {oh}, x {ow}, k {outputs}] {dtype} = {dtype}(acc[n, y, x, k])
target sm_90a
{pad}cache_write out {y} shared -> Y_s yn yy yx yk
transform_layout P [n, y, x, s, c] -> [s, {of_p}, c]
transform_layout acc [n, y, x, k] -> {of_pixel}, k]
transform_layout Y_s [n, y, x, k] -> {of_pixel}, k]
transform_block_layout P [n, y, x] -> {of_pixel}] -> pn px p
transform_block_layout mma [mma_n, mma_y, mma_x] -> {of_mma}] -> n x q
transform_block_layout out [out_n, out_y, out_x] -> {of_out}] -> on ox oq
transform_block_layout Y_s [yn, yy, yx] -> {of_store}] -> yn yx yq
split q ? {pixels} -> y qn; split k {groups} 64 -> kw km; split mma_c ? {steps} 16 -> c0 kk ki
reorder n x y kw mma_s c0 r kk km qn ki
fuse n x y -> tile; bind tile blockIdx.x persistent; bind kw warpgroup
fuse mma_s c0 -> k0
compute_at P k0 -> p0 pc; split p0 ? {tile} 8 -> py pn px; set_scope P shared
cache_read mma W shared -> W_s; compute_at W_s k0; transform_layout W_s [k, r, s, c] -> [s, r, k, c]
swizzle P W_s {swizzle}; copy_with P W_s tma
set_scope acc fragment
tensorize km wgmma.m64n{pixels}k16.f32.{dtype}.{dtype} m=km n=qn k=ki
cache_write out Y_s fragment -> Y_f
reverse_compute_at out kw -> e0 en; split e0 ? 64 -> ep e1
reverse_compute_at Y_f ep -> f0 f1; split f0 ? 16 -> fc fi; split f1 ? 16 -> fw fr; reorder fw fc fi fr; bind fw warp
tensorize fi stmatrix.trans.m16n16.{dtype}
reverse_compute_at Y_s ep -> s0 s1; {inlined}split s0 ? {tile} 8 -> sy sn sx
swizzle Y_s 128; copy_with Y_s tma
pipeline k0 stages=2; pipeline ep stages=2
specialize P W_s -> load warps=4 regs=40
",
            inside = self.inside("y", "x + s"),
            of_p = &map("n", "y", "x")[1..],
            of_pixel = map("n", "y", "x"),
            of_mma = map("mma_n", "mma_y", "mma_x"),
            of_out = map("out_n", "out_y", "out_x"),
            of_store = map("yn", "yy", "yx"),
            groups = outputs / 64,
            steps = swizzle / 32,
        )
    }

    /// A stage holds the pixels of one (r, s): a box of 8 x 8 pixels of each image. The padding is a condition on y + r and x + s.
    fn points(&self) -> String {
        let Conv { images, height, width, inputs, outputs, filter, padding, dtype, tile } = *self;
        let ([oh, ow], [h, w]) = (self.out(), self.whole());
        let pixels = 64 * tile;
        let map = |n: &str, y: &str, x: &str| {
            format!("{n} // {tile}, {y} // 8, {x} // 8, {n} % {tile} * 64 + {y} % 8 * 8 + {x} % 8")
        };
        let (pad, y, inlined) = self.padded();
        let swizzle = (2 * inputs).min(128);
        format!(
            "program conv
  input X {dtype}[{images}, {height}, {width}, {inputs}]; input W {dtype}[{outputs}, {filter}, {filter}, {inputs}]
  P: P[n {images}, y {h}, x {w}, r {filter}, s {filter}, c {inputs}] {dtype} = select({inside}, X[n, y + r - {padding}, x + s - {padding}, c], 0)
  mma: acc[n {images}, y {h}, x {w}, k {outputs}] f32 = sum(r {filter}, s {filter}, c {inputs}) f32(P[n, y, x, r, s, c])*f32(W[k, r, s, c])
  out: output Y[n {images}, y {oh}, x {ow}, k {outputs}] {dtype} = {dtype}(acc[n, y, x, k])
target sm_90a
{pad}cache_write out {y} shared -> Y_s yn yy yx yk
transform_layout P [n, y, x, r, s, c] -> [r, s, {of_pixel}, c]
transform_layout acc [n, y, x, k] -> [{of_pixel}, k]
transform_layout Y_s [n, y, x, k] -> [{of_pixel}, k]
transform_block_layout P [n, y, x] -> [{of_pixel}] -> pn py px p
transform_block_layout mma [mma_n, mma_y, mma_x] -> [{of_mma}] -> n y x q
transform_block_layout out [out_n, out_y, out_x] -> [{of_out}] -> on oy ox oq
transform_block_layout Y_s [yn, yy, yx] -> [{of_store}] -> yn yy yx yq
split k {groups} 64 -> kw km; split mma_c ? {steps} 16 -> c0 kk ki
reorder n y x kw mma_r mma_s c0 kk km q ki
fuse n y x -> tile; bind tile blockIdx.x persistent; bind kw warpgroup
fuse mma_r mma_s c0 -> k0
compute_at P k0 -> p0 pc; split p0 ? 8 8 -> pn py px; set_scope P shared
cache_read mma W shared -> W_s; compute_at W_s k0; transform_layout W_s [k, r, s, c] -> [r, s, k, c]
swizzle P W_s {swizzle}; copy_with P W_s tma
set_scope acc fragment
tensorize km wgmma.m64n{pixels}k16.f32.{dtype}.{dtype} m=km n=q k=ki
cache_write out Y_s fragment -> Y_f
reverse_compute_at out kw -> e0 en; split e0 ? 64 -> ep e1
reverse_compute_at Y_f ep -> f0 f1; split f0 ? 16 -> fc fi; split f1 ? 16 -> fw fr; reorder fw fc fi fr; bind fw warp
tensorize fi stmatrix.trans.m16n16.{dtype}
reverse_compute_at Y_s ep -> s0 s1; {inlined}split s0 8 8 -> sy sx
swizzle Y_s 128; copy_with Y_s tma
pipeline k0 stages=4 in_flight=1; pipeline ep stages=2
specialize P W_s -> load warps=4 regs=40
",
            inside = self.inside("y + r", "x + s"),
            of_pixel = map("n", "y", "x"),
            of_mma = map("mma_n", "mma_y", "mma_x"),
            of_out = map("out_n", "out_y", "out_x"),
            of_store = map("yn", "yy", "yx"),
            groups = outputs / 64,
            steps = swizzle / 32,
        )
    }

    /// Where edges cut tiles, `out` grows to whole tiles, and its stores are clipped: the step, what `out` writes, the step that clips.
    fn padded(&self) -> (&'static str, &'static str, &'static str) {
        match self.is_ragged() {
            true => (
                "pad out out_y=8 out_x=8 -> acc_pad Y_pad; compute_inline acc_pad\n",
                "Y_pad",
                "reverse_compute_inline Y_pad; ",
            ),
            false => ("", "Y", ""),
        }
    }
}

/// Every form that other tests run.
fn all() -> Vec<(&'static str, String)> {
    let whole = Conv { height: 8, width: 16, ..SMALL };
    vec![
        ("tiles that edges cut", SMALL.rows()),
        ("whole tiles of bf16", Conv { dtype: "bf16", inputs: 32, ..whole }.rows()),
        ("one tile, and no padding", Conv { height: 10, width: 9, padding: 0, ..SMALL }.rows()),
        (
            "a filter of 5 x 5, more padding than half of it",
            Conv { height: 3, width: 7, filter: 5, padding: 3, ..SMALL }.rows(),
        ),
        ("a point at a time, tiles that edges cut", Conv { width: 5, ..SMALL }.points()),
        ("a point at a time, 1 x 1", Conv { filter: 1, padding: 0, inputs: 64, ..whole }.points()),
    ]
}

/// An example of this file at a size that runs in seconds.
pub fn small(name: &str, schedule: &Schedule) -> Option<Schedule> {
    let text = match name {
        "conv_wgmma" => SMALLEST.rows(),
        // One image of 16 x 16 pixels.
        "conv3x3" => {
            let sizes = [
                ("8, 56, 56", "1, 16, 16"),
                ("n 8, y 56, x 56", "n 1, y 16, x 16"),
                ("n 8, y 58, x 58", "n 1, y 18, x 18"),
                ("57", "17"),
            ];
            sizes.iter().fold(schedule.to_string(), |text, (from, to)| text.replace(from, to))
        }
        _ => return None,
    };
    Some(Schedule::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

#[test]
fn the_example_is_of_this_form() {
    let (_, text) = examples().into_iter().find(|(name, _)| name == "conv_wgmma").unwrap();
    assert_eq!(Schedule::parse(&EXAMPLE.rows()).unwrap(), Schedule::parse(&text).unwrap());
}

#[test]
fn convolutions_are_right_in_every_order() {
    for (name, text) in all() {
        let schedule = Schedule::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        let scheduled = schedule.scheduled().unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        let lowered = lower(&scheduled, &schedule.target).unwrap_or_else(|e| panic!("{name}: {e}"));
        let naive = naive_integers(&schedule.program, 5).unwrap();
        for policy in [Policy::InOrder, Policy::Reverse, Policy::Random(1)] {
            let options = Options::new(Mode::Integer).with_policy(policy);
            let found = integers_with(&lowered, &options, 5).unwrap_or_else(|e| panic!("{name}, {policy:?}: {e}"));
            assert!(found == naive, "{name}, {policy:?}");
        }
    }
}

#[test]
fn the_ptx_of_a_convolution_gives_what_its_kernel_gives() {
    let schedule = Schedule::parse(&SMALLEST.rows()).unwrap();
    let lowered = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap();
    agrees(&schedule, &lowered).unwrap();
}

/// Extents and boxes of the tensor maps.
fn maps(text: &str) -> Vec<(Vec<i64>, Vec<i64>)> {
    lowered(text).maps.into_iter().map(|map| (map.extents, map.tile)).collect()
}

/// Boxes that fill one dimension of a stage with several of the array, in the order of the stage: one copy each.
#[test]
fn pixels_are_one_box() {
    let rows = maps(&SMALL.rows());
    assert_eq!(rows[0], (vec![13, 2, 9, 16], vec![10, 2, 8, 16]));
    assert_eq!(rows[1], (vec![3, 64, 3, 16], vec![3, 64, 1, 16]));
    assert_eq!(rows[2], (vec![13, 2, 9, 64], vec![4, 2, 8, 64]));
    let points = maps(&SMALL.points());
    assert_eq!(points[0], (vec![2, 13, 9, 16], vec![2, 8, 8, 16]));
    assert_eq!(points[2], (vec![2, 13, 9, 64], vec![1, 8, 8, 64]));
}

/// Three filter rows are no share of two blocks: each row is a box, of which every block copies half.
#[test]
fn what_blocks_cannot_divide_is_smaller_boxes() {
    let text = SMALL.rows().replace(
        "bind tile blockIdx.x persistent",
        "split tile ? 2 -> tile tc; bind tc cluster; bind tile blockIdx.x persistent",
    );
    let text = text.replace("copy_with P W_s tma", "copy_with P tma; copy_with W_s tma multicast=tc");
    let text = text.replace("compute_at W_s k0;", "compute_at W_s k0 -> wk wr wc; reorder wr wk;");
    assert_eq!(maps(&text)[1], (vec![64, 3, 3, 16], vec![32, 1, 1, 16]));
}

/// A box has zeros outside of X alone.
#[test]
fn zeros_inside_of_the_image_are_no_box() {
    let text = SMALL.points();
    assert!(text.contains("y + r < 14"), "{text}");
    let schedule = Schedule::parse(&text.replace("y + r < 14", "y + r < 13")).unwrap();
    let error = lower(&schedule.scheduled().unwrap(), &schedule.target).unwrap_err();
    assert_eq!(error.code(), Code::LowerBulkCondition);
    assert!(error.message().contains("a TMA box has zeros only outside the array"), "{error}");
}
