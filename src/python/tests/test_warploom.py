"""The wheel on numpy arrays (the simulator), and what a person sees of errors: python -m unittest discover src/python/tests"""

import pathlib
import unittest

import numpy as np
import warploom
from programs import NIBBLES

VEC_ADD = """vec_add 1024
target sm_80
split i ? 128 -> i0 i1
bind i0 blockIdx.x; bind i1 threadIdx.x
"""
# Two dynamic sizes. The iterators of each block are bound, so every kernel is one per block.
OUTER = """program outer
  size M in 4..=32 by 4; size N in 1..=9
  input X f32[M]; input Y f32[N]
  c: output C[i M, j 4] f32 = X[i] + X[i]
  d: output D[k N, l 4] f32 = Y[k] + Y[k] + Y[k]
target sm_80
bind i blockIdx.x; bind j threadIdx.x
bind k blockIdx.x; bind l threadIdx.x
"""
# A wrong schedule, the code of its error, and the whole text of the exception.
WRONG = [
    (VEC_ADD.replace("threadIdx.x", "blockIdx.x"), "bind.4", """error in the input [bind.4]: loop `i1` and loop `i0` on blockIdx.x have different extents
  in step `bind i1 blockIdx.x`
  line 4: bind i1 blockIdx.x
  step 3 of 3
  requirement 4 of bind: every loop of the nest that is bound to the axis has the same extent; loops around the staged buffers of a role alone count the role's own threads
  try: split `i1` to match
in the program as printed:
 3 |     for i1 in 0..128
   |         ^^ this loop
 2 |   for i0 in 0..8 @blockIdx.x
   |       ^^ bound to the same axis"""),
    (VEC_ADD.replace("blockIdx.x", "blockIdx.w"), "step.word", """error in the input [step.word]: `blockIdx.w` is not one of blockIdx.x, blockIdx.y, blockIdx.z, cluster, warpgroup, warp, threadIdx.x, threadIdx.y, threadIdx.z; did you mean `blockIdx.x`?
in the schedule:
 4 | bind i0 blockIdx.w; bind i1 threadIdx.x
   |         ^^^^^^^^^^ here"""),
]
WRONG_RANGE = """error in the input [size.range]: size M: 64..=1 is empty, or not within 1..=2147483647
in the schedule:
 1 | gemm 64..=1x64x64 f16>f32>f16 NN
   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ here"""


class Compiled(unittest.TestCase):
    def test_a_schedule_becomes_kernels(self):
        kernels = warploom.compile(VEC_ADD)
        self.assertEqual((kernels.name, kernels.target), ("vec_add", "sm_80"))
        self.assertIn(".target sm_80", kernels.ptx)
        self.assertIn("split i", kernels.schedule)
        self.assertEqual(kernels.arguments[2], ("C", "f32", [1024], "write"))
        self.assertEqual(repr(kernels), "<warploom.Kernels vec_add(A f32[1024], B f32[1024], C f32[1024]) for sm_80>")

    def test_a_wrong_schedule_is_underlined(self):
        for wrong, code, text in WRONG:
            with self.subTest(code), self.assertRaises(warploom.Error) as caught:
                warploom.compile(wrong)
            with self.subTest(code):
                self.assertEqual(caught.exception.code, code)
                self.assertEqual(str(caught.exception), text)

    def test_the_book_shows_an_error_as_it_is(self):
        book = pathlib.Path(__file__).parents[3] / "docs" / "src" / "shipping.md"
        [_, part] = book.read_text().split("the exception of a wrong schedule is\n\n```text\n")
        self.assertEqual(part.split("\n```\n")[0], "warploom.Error: " + WRONG[0][2])

    def test_a_wrong_size_of_a_product_is_underlined(self):
        with self.assertRaises(warploom.Error) as caught:
            warploom.gemm("64..=1", 64, 64)
        self.assertEqual(str(caught.exception), WRONG_RANGE)
        for m in [0, -1, "64..=1", "1..=x", "64x64"]:
            with self.subTest(m), self.assertRaises(warploom.Error):
                warploom.gemm(m, 64, 64)
        with self.assertRaises(TypeError) as caught:
            warploom.gemm(1.5, 64, 64)
        self.assertEqual(str(caught.exception), 'm is a number of rows or a range of them, such as "1..=8192", and a float was given')


class Simulated(unittest.TestCase):
    def test_sums_are_written_in_place(self):
        a, b, c = np.arange(1024, dtype="f4"), np.ones(1024, "f4"), np.zeros(1024, "f4")
        warploom.compile(VEC_ADD)(a, b, c)
        np.testing.assert_array_equal(c, a + b)

    def test_products_of_tensor_cores(self):
        random = np.random.default_rng(1)
        a, b = (random.integers(-3, 4, (64, 64)).astype("f2") for _ in range(2))
        for target in ["sm_80", "sm_90a"]:
            c = np.zeros((64, 64), "f2")
            warploom.gemm(64, 64, 64, target=target)(a, b, c)
            np.testing.assert_array_equal(c, a @ b)

    def test_sums_of_halves_are_of_f32(self):
        random = np.random.default_rng(2)
        a, b = (random.integers(-15, 16, (64, 64)).astype("f2") for _ in range(2))
        c = np.zeros((64, 64), "f2")
        warploom.gemm(64, 64, 64, "f16", target="sm_80")(a, b, c)
        exact = a.astype("f4") @ b.astype("f4")
        # Halves hold every whole number up to 2048: beyond it, only a sum that is rounded once is this one.
        self.assertGreater(np.abs(exact).max(), 2048)
        np.testing.assert_array_equal(c, exact.astype("f2"))

    def test_a_dynamic_size_is_that_of_the_arrays(self):
        random = np.random.default_rng(3)
        b = random.integers(-3, 4, (64, 64)).astype("f2")
        for target in ["sm_80", "sm_90a"]:
            kernels = warploom.gemm("1..=200", 64, 64, layout="NT", target=target)
            self.assertEqual(kernels.sizes, {"M": range(1, 201)})
            self.assertEqual(kernels.arguments[0], ("A", "f16", ["M", 64], "read"))
            self.assertEqual(repr(kernels), f"<warploom.Kernels gemm(A f16[1..=200, 64], B f16[64, 64], C f16[1..=200, 64]) for {target}>")
            for m in [1, 17, 200]:
                with self.subTest(target=target, m=m):
                    a, c = random.integers(-3, 4, (m, 64)).astype("f2"), np.full((m, 64), np.nan, "f2")
                    kernels(a, b, c)
                    np.testing.assert_array_equal(c, a @ b.T)

    def test_ranges_of_rows_have_kernels_of_their_own(self):
        ranges = warploom.gemm("1..=600", 512, 256, layout="NT", target="sm_90a", ranges=3)
        self.assertEqual(repr(ranges), "<warploom.Ranges gemm(A f16[1..=600, 256], B f16[512, 256], C f16[1..=600, 512]) for sm_90a>")
        self.assertEqual(ranges.sizes, {"M": range(1, 601)})
        parts = [kernels.sizes["M"] for kernels in ranges.kernels]
        self.assertIn(len(parts), [2, 3])
        # The ranges follow one another.
        self.assertEqual([m for part in parts for m in part], list(range(1, 601)))
        self.assertEqual(len({kernels.ptx for kernels in ranges.kernels}), len(parts))
        random = np.random.default_rng(4)
        b = random.integers(-3, 4, (512, 256)).astype("f2")
        for m in [parts[0][0], parts[0][-1], parts[1][0]]:
            with self.subTest(m=m):
                a, c = random.integers(-3, 4, (m, 256)).astype("f2"), np.full((m, 512), np.nan, "f2")
                ranges(a, b, c)
                np.testing.assert_array_equal(c, a @ b.T)
        for m, rows, message in [(601, 601, "M is 601, but the program has `size M in 1..=600`"), (5, 6, "M is 5 by array A, and 6 by array C")]:
            with self.subTest(message), self.assertRaises(warploom.Error) as caught:
                ranges(np.zeros((m, 256), "f2"), b, np.zeros((rows, 512), "f2"))
            self.assertIn(message, str(caught.exception))

    def test_ranges_are_those_of_a_range_of_rows(self):
        for m, most, text in [
            (64, 2, 'ranges divides a range of m, and m is a number: give m as "1..=8192", or no ranges'),
            ("1..=64", 0, "ranges is a number from 1 to 16, and 0 was given"),
            ("1..=64", -1, "ranges is a number from 1 to 16, and -1 was given"),
            ("1..=64", 17, "ranges is a number from 1 to 16, and 17 was given"),
        ]:
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                warploom.gemm(m, 64, 64, ranges=most)
            self.assertEqual(str(caught.exception), text)

    def test_several_dynamic_sizes_are_those_of_the_arrays(self):
        kernels = warploom.compile(OUTER)
        self.assertEqual(kernels.sizes, {"M": range(4, 33, 4), "N": range(1, 10)})
        for m, n in [(4, 1), (32, 9), (12, 5)]:
            x, y = np.arange(m, dtype="f4"), np.arange(n, dtype="f4")
            c, d = np.zeros((m, 4), "f4"), np.zeros((n, 4), "f4")
            kernels(x, y, c, d)
            np.testing.assert_array_equal(c, np.repeat(2 * x, 4).reshape(m, 4))
            np.testing.assert_array_equal(d, np.repeat(3 * y, 4).reshape(n, 4))

    def test_bytes_of_4_bit_elements_state_a_dynamic_size(self):
        kernels = warploom.compile(NIBBLES)
        for m in [1, 3, 16]:
            x = (np.arange(16 * m) * 37 % 256).astype("u1").reshape(m, 16)
            for given in [x, x.ravel()]:
                z = np.zeros((m, 32), "i4")
                kernels(given, z)
                np.testing.assert_array_equal(z, np.stack([given & 15, given >> 4], -1).reshape(m, 32))
        for wrong in [np.zeros(17, "u1"), np.zeros((4, 16), "u1")]:
            with self.assertRaises((warploom.Error, ValueError)):
                kernels(wrong, np.zeros((3, 32), "i4"))

    def test_arrays_that_give_a_dynamic_size_no_value_are_refused(self):
        kernels = warploom.compile(OUTER)
        f4 = lambda *shape: np.zeros(shape, "f4")
        for shapes, message, help in [
            ((8, 2, (12, 4), (2, 4)), "M is 8 by array X, and 12 by array C", "give arrays of one size"),
            ((8, 2, (8, 4), (3, 4)), "N is 2 by array Y, and 3 by array D", "give arrays of one size"),
            ((6, 2, (6, 4), (2, 4)), "M is 6, but the program has `size M in 4..=32 by 4`", "give a multiple of 4: pad the arrays"),
            ((8, 10, (8, 4), (10, 4)), "N is 10, but the program has `size N in 1..=9`", "compile the program with a wider range of the size"),
            ((8, 0, (8, 4), (0, 4)), "N is 0, but the program has `size N in 1..=9`", "skip the launch where N is 0"),
        ]:
            with self.subTest(message), self.assertRaises(warploom.Error) as caught:
                kernels(*(np.zeros(shape, "f4") for shape in shapes))
            with self.subTest(message):
                self.assertEqual(caught.exception.code, "size.value")
                self.assertEqual(str(caught.exception), f"error in the input [size.value]: {message}\n  try: {help}")
        for error, arguments, text in [
            (ValueError, (f4(8), f4(2), f4(8, 3), f4(2, 4)), "argument C is f32[8, 4], and an array of shape [8, 3] was given"),
            (TypeError, (f4(8), f4(2).astype("f8"), f4(8, 4), f4(2, 4)), "argument Y is f32[1..=9], and an array of type <f8 was given"),
        ]:
            with self.subTest(text), self.assertRaises(error) as caught:
                kernels(*arguments)
            with self.subTest(text):
                self.assertIn(text, str(caught.exception))

    def test_arrays_that_do_not_fit_are_refused(self):
        kernels = warploom.compile(VEC_ADD)
        a, c = np.zeros(1024, "f4"), np.zeros(1024, "f4")
        frozen = np.zeros(1024, "f4")
        frozen.flags.writeable = False
        for error, arguments, text in [
            (TypeError, (a, a), "vec_add takes A, B, C, and 2 arrays were given"),
            (TypeError, (a, a.astype("f8"), c), "argument B is f32[1024], and an array of type <f8 was given"),
            (TypeError, (a, [1.0], c), "argument B is no array but a list"),
            (ValueError, (a, a[:512], c), "argument B is f32[1024], and an array of shape [512] was given"),
            (ValueError, (a, np.zeros(2048, "f4")[::2], c), "an array that is not contiguous was given"),
            (ValueError, (a, a, frozen), "argument C is f32[1024] and is written, and a read-only array was given"),
        ]:
            with self.subTest(text), self.assertRaises(error) as caught:
                kernels(*arguments)
            with self.subTest(text):
                self.assertIn(text, str(caught.exception))
        kernels(frozen, a, c)


if __name__ == "__main__":
    unittest.main()
