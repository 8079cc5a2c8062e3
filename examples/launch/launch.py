"""Launches kernels that `warploom build -o DIR` or `warploom dump --out DIR` wrote, through the CUDA driver alone: no compiler, no toolkit, no package but numpy.

    warploom build examples/mma_f16.loom --target sm_80,sm_90 -o out
    python3 examples/launch/launch.py out A=a.npy B=b.npy C=c.npy
    python3 examples/launch/launch.py out:mma_f16 A=a.npy B=b.npy C=c.npy       (of several programs, the variants of this label)

Inputs without a file are drawn; outputs with a file are written to it. Elements of bf16 and of 8-bit floats are arrays of 2-byte and
1-byte integers here, 4-bit integers are two to a byte.
"""

import ctypes as c
import json
import os
import sys

import numpy as np

CUDA = c.CDLL("libcuda.so.1")
ADDRESS, POINTER = c.c_uint64, c.c_void_p
NUMPY = {"f16": "f2", "bf16": "u2", "f32": "f4", "f64": "f8", "tf32": "f4", "e4m3": "u1", "e5m2": "u1", "s8": "i1", "u8": "u1",
         "s32": "i4", "u32": "u4", "s64": "i8", "bool": "?"}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
        "s32": 32, "u32": 32, "s64": 64, "bool": 8}
# A map of TFLOAT32 would round: the upper 19 bits of a tf32 are its value, so its map is one of FLOAT32.
# CU_TENSOR_MAP_DATA_TYPE_*, CU_TENSOR_MAP_SWIZZLE_*, CU_TENSOR_MAP_L2_PROMOTION_*
MAP_TYPE = {"u8": 0, "s8": 0, "e4m3": 0, "e5m2": 0, "u32": 2, "s32": 3, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9, "tf32": 7, "bool": 0}
MAP_SWIZZLE = {0: 0, 16: 0, 32: 1, 64: 2, 128: 3}
MAP_PROMOTION = {0: 0, 64: 1, 128: 2, 256: 3}


class Attribute(c.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", c.c_uint), ("pad", c.c_uint), ("value", c.c_uint * 16)]


class Config(c.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", c.c_uint * 3), ("block", c.c_uint * 3), ("shared", c.c_uint), ("stream", POINTER),
                ("attributes", c.POINTER(Attribute)), ("count", c.c_uint)]


CLUSTER, PDL = 4, 6  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .._PROGRAMMATIC_STREAM_SERIALIZATION
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14  # CU_FUNC_ATTRIBUTE_*
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76  # CU_DEVICE_ATTRIBUTE_*


def call(name, *arguments):
    result = getattr(CUDA, name)(*arguments)
    if result != 0:
        words = c.c_char_p()
        CUDA.cuGetErrorName(result, c.byref(words))
        raise RuntimeError(f"{name}: {(words.value or b'?').decode()}")


def choose(variants, device, label):
    """The variant for the newest chip whose PTX the device runs: of this label, or of all where they take the same arguments."""
    labels = sorted({v["label"] for v in variants})
    variants = [v for v in variants if label in (None, v["label"])]
    if len({json.dumps([v["name"], v["arguments"]]) for v in variants}) != 1:
        raise RuntimeError(f"name one of these variants, as FOLDER:LABEL: {', '.join(labels)}")
    major, minor = c.c_int(), c.c_int()
    call("cuDeviceGetAttribute", c.byref(major), CAPABILITY_MAJOR, device)
    call("cuDeviceGetAttribute", c.byref(minor), CAPABILITY_MINOR, device)
    has = 10 * major.value + minor.value

    def chip(variant):
        number, exact = variant["target"][3:].rstrip("a"), variant["target"].endswith("a")
        runs = int(number) == has if exact else int(number) <= has
        return (int(number), exact) if runs else (-1, False)

    best = max(variants, key=chip)
    if chip(best)[0] < 0:
        raise RuntimeError(f"no variant runs on sm_{has}")
    return best


class Kernels:
    """The kernels of a folder, loaded into the current context."""

    def __init__(self, folder, device, label=None):
        with open(os.path.join(folder, "manifest.json")) as file:
            manifest = json.load(file)
        if manifest["version"] != 2:
            raise RuntimeError("a manifest of another version")
        self.manifest = choose(manifest["variants"], device, label)
        with open(os.path.join(folder, self.manifest["ptx"]["file"]), "rb") as file:
            ptx = file.read() + b"\0"
        self.module = POINTER()
        call("cuModuleLoadData", c.byref(self.module), ptx)
        multiprocessors = c.c_int()
        call("cuDeviceGetAttribute", c.byref(multiprocessors), MULTIPROCESSORS, device)
        self.workspace = [allocate(w["bytes"]) for w in self.manifest["workspace"]]
        self.kernels = [self.load(k, multiprocessors.value) for k in self.manifest["kernels"]]

    def load(self, kernel, multiprocessors):
        function = POINTER()
        call("cuModuleGetFunction", c.byref(function), self.module, kernel["entry"].encode())
        call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, kernel["shared_bytes"])
        attributes = []
        cluster = kernel["cluster"]
        if cluster != [1, 1, 1]:
            attributes.append(Attribute(CLUSTER, 0, (c.c_uint * 16)(*cluster)))
            if np.prod(cluster) > 8:
                call("cuFuncSetAttribute", function, NON_PORTABLE_CLUSTER, 1)
        if kernel["pdl"]:
            attributes.append(Attribute(PDL, 0, (c.c_uint * 16)(1)))
        held = (Attribute * len(attributes))(*attributes)
        config = Config((c.c_uint * 3)(*kernel["grid"]), (c.c_uint * 3)(*kernel["block"]), kernel["shared_bytes"], None, held,
                        len(attributes))
        if kernel["persistent"]:
            # Any number of blocks in x does all the work: as many as the device holds at once.
            number = c.c_int()
            if cluster != [1, 1, 1]:
                call("cuOccupancyMaxActiveClusters", c.byref(number), function, c.byref(config))
                resident = number.value * cluster[0]
            else:
                threads = int(np.prod(kernel["block"]))
                call("cuOccupancyMaxActiveBlocksPerMultiprocessor", c.byref(number), function, threads,
                     c.c_size_t(kernel["shared_bytes"]))
                resident = number.value * multiprocessors
            config.grid[0] = min(kernel["grid"][0], resident)
        return kernel, function, config, held

    def launch(self, addresses, stream=None):
        """Launches all kernels, in order, on a stream; `addresses` are those of the arguments."""
        for kernel, function, config, _ in self.kernels:
            config.stream = stream
            values = [self.value(p, addresses) for p in kernel["params"]]
            pointers = (POINTER * len(values))(*[c.addressof(v) for v in values])
            call("cuLaunchKernelEx", c.byref(config), function, pointers, None)

    def value(self, param, addresses):
        if "arg" in param:
            return ADDRESS(addresses[param["arg"]])
        if "workspace" in param:
            return ADDRESS(self.workspace[param["workspace"]])
        spec = param["tensor_map"]
        return tensor_map(spec, self.value(spec["array"], addresses).value)


def tensor_map(spec, address):
    """A CUtensorMap: 128 bytes at a multiple of 64. The driver counts dimensions from the innermost one, and strides in bytes."""
    held = (c.c_uint64 * 24)()
    aligned = (c.addressof(held) + 63) // 64 * 64
    result = (c.c_uint64 * 16).from_buffer(held, aligned - c.addressof(held))
    rank, bits = len(spec["extents"]), BITS[spec["dtype"]]
    extents = (c.c_uint64 * rank)(*reversed(spec["extents"]))
    strides = (c.c_uint64 * rank)(*[s * bits // 8 for s in reversed(spec["strides"][:-1])])
    box = (c.c_uint32 * rank)(*reversed(spec["box"]))
    ones = (c.c_uint32 * rank)(*[1] * rank)
    call("cuTensorMapEncodeTiled", result, MAP_TYPE[spec["dtype"]], rank, POINTER(address), extents, strides, box, ones, 0,
         MAP_SWIZZLE[spec["swizzle"]], MAP_PROMOTION[spec["promotion"]], 0)
    return result


def allocate(size):
    address = ADDRESS()
    call("cuMemAlloc_v2", c.byref(address), c.c_size_t(max(size, 1)))
    return address.value


def host(argument, file):
    """The array of an argument: from a file, or drawn."""
    dtype = argument["dtype"]
    if dtype not in NUMPY:
        return np.random.default_rng(1).integers(0, 256, argument["bytes"], np.uint8)
    if file and argument["access"] != "write":
        array = np.load(file)
        if array.dtype != np.dtype(NUMPY[dtype]) or list(array.shape) != argument["shape"]:
            raise RuntimeError(f"{file} does not hold {dtype}{argument['shape']}")
        return np.ascontiguousarray(array)
    drawn = np.random.default_rng(1).random(argument["bytes"] * 8 // BITS[dtype]) - 0.5
    if dtype == "bool":
        return drawn > 0
    return (drawn * (1 if NUMPY[dtype][0] == "f" else 8)).astype(NUMPY[dtype])


def main():
    (folder, _, label), files = sys.argv[1].partition(":"), dict(word.split("=", 1) for word in sys.argv[2:])
    call("cuInit", 0)
    device, context = c.c_int(), POINTER()
    call("cuDeviceGet", c.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", c.byref(context), device)
    call("cuCtxSetCurrent", context)
    kernels = Kernels(folder, device, label or None)
    unknown = set(files) - {a["name"] for a in kernels.manifest["arguments"]}
    if unknown:
        raise RuntimeError(f"no arguments are called {', '.join(sorted(unknown))}")
    arrays, addresses = [], []
    for argument in kernels.manifest["arguments"]:
        arrays.append(host(argument, files.get(argument["name"])))
        addresses.append(allocate(argument["bytes"]))
        call("cuMemcpyHtoD_v2", ADDRESS(addresses[-1]), arrays[-1].ctypes.data_as(POINTER), c.c_size_t(arrays[-1].nbytes))
    kernels.launch(addresses)
    call("cuCtxSynchronize")
    for argument, array, address in zip(kernels.manifest["arguments"], arrays, addresses):
        if argument["access"] == "read":
            continue
        call("cuMemcpyDtoH_v2", array.ctypes.data_as(POINTER), ADDRESS(address), c.c_size_t(array.nbytes))
        if argument["name"] in files:
            packed = argument["dtype"] not in NUMPY
            np.save(files[argument["name"]], array if packed else array.reshape(argument["shape"]))
        print(f"{argument['name']}: {argument['dtype']}{argument['shape']}, first elements {array.ravel()[:4]}")


if __name__ == "__main__":
    main()
