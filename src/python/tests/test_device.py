"""Device arrays by DLPack and by `__cuda_array_interface__`, on a driver without a GPU (`tests/mock-driver`), whose kernel is a function here.

Skipped where libcuda.so.1 is not that driver: .ci/wheel builds it and has LD_LIBRARY_PATH name its folder.
"""

import contextlib
import ctypes as c
import os
import unittest

import numpy as np
import warploom
from programs import NIBBLES

try:
    CUDA = c.CDLL("libcuda.so.1")
    CUDA.mock_journal
except (OSError, AttributeError):
    if "WARPLOOM_MOCK" in os.environ:
        raise
    CUDA = None

# Row i of Z is the sum of rows of X and Y. Each block has a row, so the grid is the number of rows.
ROWS = """program rows
  size M in 8..=64 by 8
  input X f32[M, 32]; input Y f32[M, 32]
  Z: output Z[i M, j 32] f32 = X[i, j] + Y[i, j]
target sm_80
bind i blockIdx.x; bind j threadIdx.x
"""
VEC_ADD = "vec_add 1024\ntarget sm_80\nsplit i ? 128 -> i0 i1\nbind i0 blockIdx.x; bind i1 threadIdx.x\n"
NEW_CAPSULE = c.pythonapi.PyCapsule_New
NEW_CAPSULE.restype, NEW_CAPSULE.argtypes = c.py_object, [c.c_void_p, c.c_void_p, c.c_void_p]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32 * 2), ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.c_void_p), ("byte_offset", c.c_uint64)]


class Legacy(c.Structure):
    """DLManagedTensor."""


DELETER = c.CFUNCTYPE(None, c.POINTER(Legacy))
Legacy._fields_ = [("tensor", DLTensor), ("context", c.c_void_p), ("deleter", DELETER)]


class Launch(c.Structure):
    """A launch as the driver passes it to an executor (tests/mock-driver/state.rs)."""

    _fields_ = [("entry", c.c_char_p), ("text", c.c_char_p), ("extents", c.c_uint32 * 10), ("values", c.POINTER(c.c_uint64)),
                ("sizes", c.c_void_p), ("count", c.c_size_t)]


def memory(address, shape=(1024,)):
    """Device memory of the driver is host memory."""
    return np.ctypeslib.as_array((c.c_float * int(np.prod(shape))).from_address(address)).reshape(shape)


@c.CFUNCTYPE(c.c_int, c.POINTER(Launch))
def add(launch):
    x, y, z = (memory(launch.contents.values[n]) for n in range(3))
    z[:] = x + y
    return 0


@c.CFUNCTYPE(c.c_int, c.POINTER(Launch))
def add_rows(launch):
    x, y, z = (memory(launch.contents.values[n], (launch.contents.extents[0], 32)) for n in range(3))
    z[:] = x + y
    return 0


def call(name, *arguments):
    code = getattr(CUDA, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def journal():
    text = c.create_string_buffer(1 << 20)
    length = CUDA.mock_journal(text, c.c_size_t(len(text)))
    return text.raw[:length].decode().splitlines()


class Interface:
    """Floats on the device, by `__cuda_array_interface__`: 1024 of one value, or those of an array."""

    typestr = "<f4"

    def __init__(self, values):
        self.extents = np.shape(values) or (1024,)
        address = c.c_uint64()
        call("cuMemAlloc_v2", c.byref(address), c.c_size_t(4 * int(np.prod(self.extents))))
        self.address = address.value
        self.array()[...] = values

    def array(self):
        return memory(self.address, self.extents)

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.address, False), "typestr": self.typestr, "shape": self.extents, "strides": None, "version": 3}


class Tensor:
    """The same by DLPack, as a library before version 1.0 hands it over: without `max_version`."""

    array = Interface.array

    def __init__(self, values, device=0, bits=32):
        held = Interface(values)
        self.address, self.extents, self.device, self.bits = held.address, held.extents, device, bits
        self.shape = (c.c_int64 * len(self.extents))(*self.extents)
        self.streams, self.deleted, self.held = [], 0, []

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        deleter = DELETER(self.delete)
        tensor = DLTensor(self.address, (2, self.device), len(self.shape), 2, self.bits, 1, self.shape, None, 0)
        managed = Legacy(tensor, None, deleter)
        self.held.append((deleter, managed))
        return NEW_CAPSULE(c.addressof(managed), b"dltensor", None)

    def delete(self, _):
        self.deleted += 1


TO_TENSOR = c.CFUNCTYPE(c.c_int, c.py_object, c.POINTER(DLTensor))
STREAM = c.CFUNCTYPE(c.c_int, c.c_int32, c.c_int32, c.POINTER(c.c_void_p))


class Table(c.Structure):
    """DLPackExchangeAPI."""

    _fields_ = [("version", c.c_uint32 * 2), ("unused", c.c_void_p * 4), ("tensor", TO_TENSOR), ("stream", STREAM)]


class Exchanged(Tensor):
    """The same from a library that describes its arrays in C."""

    current = 0

    @TO_TENSOR
    @staticmethod
    def tensor(array, out):
        out[0] = DLTensor(array.address, (2, array.device), len(array.shape), 2, array.bits, 1, array.shape, None, 0)
        return 0

    @STREAM
    @staticmethod
    def stream(_kind, _number, out):
        out[0] = Exchanged.current
        return 0


# A capsule keeps the address of its name.
NAME = c.create_string_buffer(b"dlpack_exchange_api")
EXCHANGE = Table((1, 3), (None,) * 4, Exchanged.tensor, Exchanged.stream)
Exchanged.__dlpack_c_exchange_api__ = NEW_CAPSULE(c.addressof(EXCHANGE), c.addressof(NAME), None)


@unittest.skipIf(CUDA is None, "libcuda.so.1 is not the driver of the tests")
class OnDevice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        call("cuInit", 0)
        assert CUDA.mock_configure(b"devices 2") == 0
        cls.context = c.c_void_p()
        call("cuDevicePrimaryCtxRetain", c.byref(cls.context), 0)
        call("cuCtxSetCurrent", cls.context)
        CUDA.mock_executor(add)
        cls.kernels = warploom.compile(VEC_ADD)
        cls.ones, cls.numbers = np.ones(1024, "f4"), np.arange(1024, dtype="f4")

    def sums(self, kind):
        x, y, z = kind(self.ones), kind(self.numbers), kind(0)
        journal()
        self.kernels(x, y, z)
        call("cuCtxSynchronize")
        np.testing.assert_array_equal(memory(z.address), self.ones + self.numbers)
        return x, y, z

    def test_dlpack_arrays_are_launched_on_and_given_back(self):
        for tensor in self.sums(Tensor):
            # The legacy default stream is 1 in the protocol; the capsule's tensor is given back once.
            self.assertEqual((tensor.streams, tensor.deleted), ([1], 1))
        lines = journal()
        launches = [line for line in lines if line.startswith("cuLaunchKernel")]
        self.assertEqual(len(launches), 1)
        self.assertIn("stream default", launches[0])
        self.assertNotIn("Synchronize", "".join(lines[:lines.index(launches[0])] + lines[lines.index(launches[0]) + 1:-1]))

    def test_arrays_described_in_c_are_launched_on_the_current_stream_of_their_library(self):
        for current, streams in [(0, []), (64, [1])]:
            # Of another stream the library has to order its work first, as `__dlpack__` does.
            Exchanged.current = current
            for tensor in self.sums(Exchanged):
                self.assertEqual((tensor.streams, tensor.deleted), (streams, len(streams)))
        Exchanged.current = 0
        with self.assertRaises(warploom.Error) as caught:
            self.kernels(Exchanged(0), Exchanged(0, bits=64), Exchanged(0))
        self.assertEqual(caught.exception.code, "launch.dtype")
        with self.assertRaises(warploom.Error) as caught:
            self.kernels(Exchanged(0), Tensor(0, device=1), Exchanged(0))
        self.assertEqual(caught.exception.code, "dlpack.device")
        with self.assertRaises(TypeError):
            self.kernels(Exchanged(0), Interface(0), self.numbers)

    def test_arrays_by_their_interface_are_launched_on(self):
        self.sums(Interface)

    def test_what_does_not_fit_is_an_exception_with_a_code(self):
        x, y, z = (Tensor(0) for _ in range(3))
        for wrong, code in [(Tensor(0, device=1), "dlpack.device"), (Tensor(0, bits=64), "launch.dtype")]:
            with self.assertRaises(warploom.Error) as caught:
                self.kernels(x, wrong, z)
            self.assertEqual((caught.exception.code, wrong.deleted), (code, 1))
        with self.assertRaises(warploom.Error) as caught:
            self.kernels(x, y, x)
        self.assertEqual(caught.exception.code, "launch.overlap")
        with self.assertRaises(TypeError):
            self.kernels(x, self.numbers, z)
        # An array by its interface beside one by DLPack of another type.
        with self.assertRaises(warploom.Error) as caught:
            self.kernels(Interface(0), Tensor(0, bits=64), z)
        self.assertEqual(caught.exception.code, "launch.dtype")

    def test_arrays_by_their_interface_are_checked_as_others_are(self):
        x, y, z = (Interface(0) for _ in range(3))
        with self.on_device(1):
            elsewhere = Interface(0)
        shifted = Interface(0)
        shifted.address = z.address + 4
        nowhere = Interface(0)
        nowhere.address = 64
        for arrays, code in [((x, y, x), "launch.overlap"), ((x, elsewhere, z), "dlpack.device"), ((x, y, nowhere), "driver.1"),
                             ((x, shifted, Interface(0)), "launch.align")]:
            with self.assertRaises(warploom.Error) as caught:
                self.kernels(*arrays)
            self.assertEqual(caught.exception.code, code)
        # Arrays of another device than the first one are launched on there.
        with self.on_device(1):
            self.sums(Interface)
        self.assertIn("cuLaunchKernel", " ".join(journal()))

    def test_a_dynamic_size_is_that_of_the_arrays(self):
        CUDA.mock_executor(add_rows)
        self.addCleanup(CUDA.mock_executor, add)
        kernels = warploom.compile(ROWS)
        for kind in [Interface, Tensor, Exchanged]:
            for m in [8, 24, 64]:
                with self.subTest(kind=kind.__name__, m=m):
                    x = np.arange(32 * m, dtype="f4").reshape(m, 32)
                    arrays = [kind(x), kind(np.full((m, 32), m, "f4")), kind(np.zeros((m, 32), "f4"))]
                    journal()
                    kernels(*arrays)
                    call("cuCtxSynchronize")
                    np.testing.assert_array_equal(arrays[2].array(), x + m)
                    launches = [line for line in journal() if line.startswith("cuLaunchKernel")]
                    self.assertEqual(len(launches), 1)
                    self.assertIn(f" grid [{m}, 1, 1] ", launches[0])

    def test_ranges_launch_the_kernels_of_the_rows(self):
        CUDA.mock_executor(c.CFUNCTYPE(c.c_int, c.POINTER(Launch))())
        self.addCleanup(CUDA.mock_executor, add)
        ranges = warploom.gemm("1..=4096", 512, 64, "f32", "NT", target="sm_80", ranges=2)
        first, second = (kernels.sizes["M"] for kernels in ranges.kernels)
        f4 = lambda *shape: Tensor(np.zeros(shape, "f4"))
        launches = {}
        for m in [first[0], first[-1], second[0], second[-1]]:
            for run in [ranges] + list(ranges.kernels):
                if run is ranges or m in run.sizes["M"]:
                    journal()
                    run(f4(m, 64), f4(512, 64), f4(m, 512))
                    call("cuCtxSynchronize")
                    [line] = [line for line in journal() if line.startswith("cuLaunchKernel")]
                    # The grid, the block and the shared memory: addresses are others.
                    launches.setdefault(m, set()).add(line.split(" params ")[0])
        self.assertEqual({m: len(lines) for m, lines in launches.items()}, dict.fromkeys(launches, 1))
        self.assertNotEqual(launches[first[-1]], launches[second[0]])

    def test_bytes_of_4_bit_elements_state_a_dynamic_size(self):
        CUDA.mock_executor(c.CFUNCTYPE(c.c_int, c.POINTER(Launch))())
        self.addCleanup(CUDA.mock_executor, add)
        kernels = warploom.compile(NIBBLES)
        for extents, m in [((3, 16), 3), ((48,), 3), ((2, 2, 4), 1), ((17,), None), ((272,), None)]:
            x, z = Interface(0), Interface(np.zeros((m or 1, 32), "f4"))
            (x.extents, x.typestr), z.typestr = (extents, "|u1"), "<i4"
            journal()
            if m is None:
                with self.subTest(extents), self.assertRaises(warploom.Error) as caught:
                    kernels(x, z)
                self.assertIn(caught.exception.code, ["launch.shape", "size.value"])
                self.assertNotIn("cuLaunchKernel", " ".join(journal()))
            else:
                kernels(x, z)
                self.assertIn(f" grid [{m}, 1, 1] ", " ".join(journal()))
            call("cuCtxSynchronize")

    def test_arrays_that_give_a_dynamic_size_no_value_are_refused(self):
        kernels = warploom.compile(ROWS)
        of = {m: np.zeros((m, 32), "f4") for m in [0, 8, 12, 16, 72]}
        journal()
        for kind in [Interface, Tensor, Exchanged]:
            for ms, message, help in [
                ((8, 16, 8), "M is 8 by array X, and 16 by array Y", "give arrays of one size"),
                ((16, 16, 8), "M is 16 by array Y, and 8 by array Z", "give arrays of one size"),
                ((12, 12, 12), "M is 12, but the program has `size M in 8..=64 by 8`", "give a multiple of 8: pad the arrays"),
                ((72, 72, 72), "M is 72, but the program has `size M in 8..=64 by 8`", "compile the program with a wider range of the size"),
            ]:
                with self.subTest(kind=kind.__name__, ms=ms), self.assertRaises(warploom.Error) as caught:
                    kernels(*(kind(of[m]) for m in ms))
                self.assertEqual(caught.exception.code, "size.value")
                self.assertEqual(str(caught.exception), f"error in the input [size.value]: {message}\n  try: {help}")
            # The rows agree, and their length does not.
            with self.assertRaises(warploom.Error) as caught:
                kernels(kind(of[16]), kind(np.zeros((16, 16), "f4")), kind(of[16]))
            self.assertEqual(caught.exception.code, "launch.shape")
            self.assertIn("argument Y of rows is f32[16, 32], and f32[16, 16] was given", str(caught.exception))
        self.assertNotIn("cuLaunchKernel", " ".join(journal()))

    @contextlib.contextmanager
    def on_device(self, ordinal):
        context, before = c.c_void_p(), self.context
        call("cuDevicePrimaryCtxRetain", c.byref(context), ordinal)
        call("cuCtxSetCurrent", context)
        yield
        call("cuCtxSetCurrent", before)


if __name__ == "__main__":
    unittest.main()
