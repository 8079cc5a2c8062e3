"""The wheel on numpy arrays (the simulator), and what a person sees of errors: python -m unittest discover src/python/tests"""

import unittest

import numpy as np
import warploom

VEC_ADD = """vec_add 1024
target sm_80
split i ? 128 -> i0 i1
bind i0 blockIdx.x; bind i1 threadIdx.x
"""


class Compiled(unittest.TestCase):
    def test_a_schedule_becomes_kernels(self):
        kernels = warploom.compile(VEC_ADD)
        self.assertEqual((kernels.name, kernels.target), ("vec_add", "sm_80"))
        self.assertIn(".target sm_80", kernels.ptx)
        self.assertIn("split i", kernels.schedule)
        self.assertEqual(kernels.arguments[2], ("C", "f32", [1024], "write"))
        self.assertEqual(repr(kernels), "<warploom.Kernels vec_add(A f32[1024], B f32[1024], C f32[1024]) for sm_80>")

    def test_a_wrong_schedule_is_underlined(self):
        with self.assertRaises(warploom.Error) as caught:
            warploom.compile(VEC_ADD.replace("blockIdx.x", "blockIdx.w"))
        self.assertIn("4 | bind i0 blockIdx.w; bind i1 threadIdx.x\n", str(caught.exception))
        self.assertIn("^^^", str(caught.exception))
        self.assertTrue(caught.exception.code)
        with self.assertRaises(warploom.Error):
            warploom.gemm(0, 64, 64)


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
