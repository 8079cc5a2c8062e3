"""examples/launch/launch.py on the driver of the tests: artefacts of the command line, whose kernel is a function here.

Skipped where libcuda.so.1 is not that driver (see test_device.py). Needs target/debug/warploom.
"""

import contextlib
import ctypes as c
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np
import warploom
from test_device import CUDA, Launch, call, journal

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "launch" / "launch.py"
WARPLOOM = ROOT / "target" / "debug" / "warploom"
# A block has 16 rows, so it asks how many there are.
ROWS = """program rows
  size M in 8..=64 by 8
  input X f32[M, 32]
  Z: output Z[i M, j 32] f32 = X[i, j] + X[i, j]
target sm_80
split i ? 16 -> i0 i1
bind i0 blockIdx.x; bind j threadIdx.x
"""


def example():
    spec = importlib.util.spec_from_file_location("launch", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters(launch):
    """The parameters of a launch: addresses of 8 bytes, that of a tensor map's array in its first 8, and sizes of 4."""
    at, addresses, sizes = c.addressof(launch.values.contents), [], []
    for n in range(launch.count):
        length = (c.c_size_t * launch.count).from_address(launch.sizes)[n]
        (sizes if length == 4 else addresses).append((c.c_uint32 if length == 4 else c.c_uint64).from_address(at).value)
        at += length
    return addresses, sizes


def memory(address, *shape):
    return np.ctypeslib.as_array((c.c_uint16 * int(np.prod(shape))).from_address(address)).view("f2").reshape(shape)


def shapes_of(lines):
    """Grid, block, cluster and shared memory of each launch, and what each tensor map is encoded of: all but the addresses."""
    launches = [line.split(" ", 1)[1].split(" params ")[0] for line in lines if line.startswith("cuLaunchKernel")]
    maps = [line.split(" ", 1)[1] for line in lines if line.startswith("cuTensorMapEncodeTiled")]
    return launches, sorted(maps)


class Halves:
    """An array of f16 on the device."""

    def __init__(self, *shape):
        address = c.c_uint64()
        call("cuMemAlloc_v2", c.byref(address), c.c_size_t(2 * int(np.prod(shape))))
        self.__cuda_array_interface__ = {"data": (address.value, False), "typestr": "<f2", "shape": shape, "strides": None, "version": 3}


class Product:
    """C = A B^T by numpy in the place of the kernel; A and B are at the first addresses, and C at the last."""

    def __init__(self, n, k):
        self.n, self.k, self.rows = n, k, None
        self.executor = c.CFUNCTYPE(c.c_int, c.POINTER(Launch))(self.run)

    def run(self, launch):
        addresses, sizes = parameters(launch.contents)
        self.sizes = sizes
        a, b, out = memory(addresses[0], self.rows, self.k), memory(addresses[1], self.n, self.k), memory(addresses[-1], self.rows, self.n)
        out[...] = a.astype("f4") @ b.T.astype("f4")
        return 0


@unittest.skipIf(CUDA is None, "libcuda.so.1 is not the driver of the tests")
class Launched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        call("cuInit", 0)
        cls.folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT / "target"))
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", str(cls.folder)], check=True)
        for target in ["sm_80", "sm_90a", "sm_80,sm_90a"]:
            cls.build(target, "1..=512x512x512", "--target", target, "--ranges", "1")
        cls.build("ranges", "1..=4096x512x64", "--target", "sm_80", "--ranges", "2")
        cls.build("fixed", "64x64x64", "--target", "sm_80")
        cls.launch = example()

    @classmethod
    def build(cls, name, sizes, *words):
        words = [WARPLOOM, "build", "--gemm", sizes, "--dtype", "f16", "--layout", "NT", "-o", cls.folder / name, *words]
        subprocess.run(words, check=True, capture_output=True)

    def setUp(self):
        self.settings(9.0)
        self.addCleanup(CUDA.mock_executor, None)
        self.addCleanup(self.settings, 9.0)

    def settings(self, capability):
        # Devices as in test_device.py, whose tests run in this process.
        self.assertEqual(CUDA.mock_configure(f"devices 2\ncapability {capability}".encode()), 0)

    def main(self, name, *words, product=None, rows=None):
        """Runs the example, and returns what it prints and the calls that it makes."""
        if product:
            product.rows = rows
            CUDA.mock_executor(product.executor)
        said = io.StringIO()
        journal()
        argv = ["launch.py", str(self.folder / name), *map(str, words)]
        with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(said):
            self.launch.main()
        return said.getvalue(), journal()

    def arrays(self, m, n, k):
        """Words for arrays in files, and the product."""
        random = np.random.default_rng(m)
        a, b = (random.integers(-3, 4, (rows, k)).astype("f2") for rows in (m, n))
        files = [self.folder / f"{letter}.npy" for letter in "abc"]
        np.save(files[0], a)
        np.save(files[1], b)
        return [f"{letter}={file}" for letter, file in zip("ABC", files)], files[2], a @ b.T

    def test_kernels_of_fixed_size(self):
        words, out, expected = self.arrays(64, 64, 64)
        said, _ = self.main("fixed", *words, product=Product(64, 64), rows=64)
        np.testing.assert_array_equal(np.load(out), expected)
        self.assertRegex(said, r"^C: f16\[64, 64\], first elements ")

    def test_a_dynamic_size_is_the_rows_of_the_arrays(self):
        for target, m in [("sm_80", 1), ("sm_80", 37), ("sm_80", 512), ("sm_90a", 37), ("sm_90a", 512)]:
            with self.subTest(target=target, m=m):
                product = Product(512, 512)
                words, out, expected = self.arrays(m, 512, 512)
                said, lines = self.main(target, *words, product=product, rows=m)
                np.testing.assert_array_equal(np.load(out), expected)
                self.assertIn(f"C: f16[{m}, 512], ", said)
                # The kernel for sm_80 takes the size as a parameter, that for sm_90a in its tensor maps alone.
                self.assertEqual(product.sizes, [m] if target == "sm_80" else [])
                # The grid and the tensor maps are those of the runtime.
                self.assertEqual(shapes_of(lines), self.by_the_wheel(target, m))
                self.assertEqual(any(f"[512, {m}]" in line for line in lines), target == "sm_90a", lines)

    def by_the_wheel(self, target, m):
        """Launches and tensor maps of the same schedule by the wheel."""
        [variant] = json.loads((self.folder / target / "manifest.json").read_text())["variants"]
        kernels = warploom.compile(variant["schedule"])
        CUDA.mock_executor(None)
        arrays = [Halves(m, 512), Halves(512, 512), Halves(m, 512)]
        journal()
        kernels(*arrays)
        call("cuCtxSynchronize")
        return shapes_of(journal())

    def test_a_dynamic_size_is_the_number_that_is_given_or_the_largest(self):
        for words, m in [(["M=37"], 37), ([], 512)]:
            said, lines = self.main("sm_80", *words, product=Product(512, 512), rows=m)
            self.assertIn(f"C: f16[{m}, 512], ", said)
            self.assertEqual(shapes_of(lines), self.by_the_wheel("sm_80", m))

    def test_a_kernel_takes_a_size_in_units_of_its_divisor(self):
        (self.folder / "rows.loom").write_text(ROWS)
        subprocess.run([WARPLOOM, "build", self.folder / "rows.loom", "-o", self.folder / "rows"], check=True, capture_output=True)
        sizes = []
        record = c.CFUNCTYPE(c.c_int, c.POINTER(Launch))(lambda launch: sizes.extend(parameters(launch.contents)[1]) or 0)
        CUDA.mock_executor(record)
        for words in [["M=8"], ["M=24"], []]:
            self.main("rows", *words)
        self.assertEqual(sizes, [1, 3, 8])
        with self.assertRaises(self.launch.Wrong) as caught:
            self.main("rows", "M=12")
        self.assertEqual(str(caught.exception), "M is 12, and the kernels take size M in 8..=64 by 8")

    def test_the_variant_is_the_one_for_the_chip(self):
        for capability, has_maps in [(8.0, False), (9.0, True)]:
            self.settings(capability)
            _, lines = self.main("sm_80,sm_90a", "M=37", product=Product(512, 512), rows=37)
            self.assertEqual("cuTensorMapEncodeTiled" in " ".join(lines), has_maps)

    def test_the_variant_is_the_one_whose_range_has_the_size(self):
        blocks = {}
        for m in [1, 4096]:
            said, lines = self.main("ranges", f"M={m}", product=Product(512, 64), rows=m)
            self.assertIn(f"C: f16[{m}, 512], ", said)
            [line] = [line for line in lines if line.startswith("cuLaunchKernel")]
            blocks[m] = line.split(" block ")[1].split(" stream ")[0]
        self.assertNotEqual(blocks[1], blocks[4096])
        said, _ = self.main("ranges", product=Product(512, 64), rows=4096)
        self.assertIn("C: f16[4096, 512], ", said)

    def test_wrong_words_are_an_error_in_one_line(self):
        words, _, _ = self.arrays(37, 512, 512)
        one = self.folder / "sm_80"
        for argv, text in [
            ([], "write the folder of an artefact, as in: launch.py out A=a.npy C=c.npy"),
            ([self.folder], f"{self.folder} is no folder that warploom wrote: "),
            ([one, "M=513"], "M is 513, and the kernels take size M in 1..=512 by 1"),
            ([one, "M=many"], "M=many: M is a size, such as M=64"),
            ([one, "D=d.npy"], "D=d.npy: write NAME=FILE for one of A, B, C, or M=NUMBER"),
            ([one, words[0], "M=38"], "M is 37 by array A, and 38 by the command line: give one value"),
            ([one, "B=" + words[0][2:]], "B is f16[512, 512], and "),
            ([one, "A=none.npy"], "A=none.npy: "),
        ]:
            with self.subTest(text):
                run = subprocess.run([sys.executable, EXAMPLE, *argv], capture_output=True, text=True)
                self.assertEqual((run.returncode, run.stderr.count("\n")), (1, 1), run.stderr)
                self.assertTrue(run.stderr.startswith("launch.py: " + text), run.stderr)


if __name__ == "__main__":
    unittest.main()
