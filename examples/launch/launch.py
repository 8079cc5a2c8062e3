"""Launches kernels that `warploom build -o DIR` or `warploom dump --out DIR` wrote, through the CUDA driver alone: no compiler, no toolkit, no package but numpy.

    warploom build examples/mma_f16.loom --target sm_80,sm_90 -o out
    python3 examples/launch/launch.py out A=a.npy B=b.npy C=c.npy
    python3 examples/launch/launch.py out:mma_f16 A=a.npy B=b.npy C=c.npy       (of several programs, the variants of this label)

    warploom build --gemm 1..=512x512x512 --dtype f16 --layout NT --target sm_80,sm_90a -o out
    python3 examples/launch/launch.py out M=37
    python3 examples/launch/launch.py out A=a.npy C=c.npy                       (M is the number of rows of a.npy)

Inputs without a file are drawn; outputs with a file are written to it. A dynamic size is the number that is given (M=37), else that of the
arrays that are read, else the largest. Elements of bf16 and of 8-bit floats are arrays of 2-byte and 1-byte integers here, 4-bit integers are
two to a byte.
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


class Wrong(Exception):
    """What is wrong with the words on the command line, or with the files that they name."""


def variants_of(folder):
    """The variants of a folder's manifest."""
    try:
        with open(os.path.join(folder, "manifest.json")) as file:
            manifest = json.load(file)
    except (OSError, ValueError) as error:
        raise Wrong(f"{folder} is no folder that warploom wrote: {error}") from error
    if manifest["version"] != 2:
        raise Wrong(f"{folder} has a manifest of version {manifest['version']}, and this program reads version 2")
    return manifest["variants"]


def signature(variant):
    """The program and what it takes, but for the values of dynamic sizes."""
    of = [[a["name"], a["dtype"], a["shape"][1:] if "dynamic" in a else a["shape"]] for a in variant["arguments"]]
    return json.dumps([variant["name"], of, [size["name"] for size in variant.get("sizes", [])]])


def stated(variant, arrays, numbers):
    """The value of each dynamic size: the number that is given, or the rows of the arrays that have it; None where nothing says it."""
    values = []
    for n, size in enumerate(variant.get("sizes", [])):
        rows = {f"array {a['name']}": arrays[a["name"]].shape[0] for a in variant["arguments"]
                if a.get("dynamic") == n and a["name"] in arrays and arrays[a["name"]].ndim}
        if size["name"] in numbers:
            rows["the command line"] = numbers[size["name"]]
        if len(set(rows.values())) > 1:
            raise Wrong(f"{size['name']} is {', and '.join(f'{value} by {name}' for name, value in rows.items())}: give one value")
        values.append(next(iter(rows.values()), None))
    return values


def takes(variant, values):
    """Whether each size of the variant can have its value."""
    pairs = zip(variant.get("sizes", []), values)
    return all(value is None or size["low"] <= value <= size["high"] and value % size["by"] == 0 for size, value in pairs)


def choose(variants, device, label, arrays, numbers):
    """The variant for the newest chip whose PTX the device runs, and the values of its dynamic sizes. It is of this label, or of all where they
    take the same arguments, and its sizes can have the values that arrays and numbers state."""
    labels = sorted({v["label"] for v in variants})
    variants = [v for v in variants if label in (None, v["label"])]
    if len({signature(v) for v in variants}) != 1:
        raise Wrong(f"name one of these variants, as FOLDER:LABEL: {', '.join(labels)}")
    values = stated(variants[0], arrays, numbers)
    suited = [v for v in variants if takes(v, values)]
    if not suited:
        sizes = variants[0]["sizes"]
        given = ", ".join(f"{size['name']} is {value}" for size, value in zip(sizes, values) if value is not None)
        known = [", ".join("size {name} in {low}..={high} by {by}".format(**size) for size in v["sizes"]) for v in variants]
        raise Wrong(f"{given}, and the kernels take {'; '.join(dict.fromkeys(known))}")
    major, minor = c.c_int(), c.c_int()
    call("cuDeviceGetAttribute", c.byref(major), CAPABILITY_MAJOR, device)
    call("cuDeviceGetAttribute", c.byref(minor), CAPABILITY_MINOR, device)
    has = 10 * major.value + minor.value

    def chip(variant):
        number, exact = variant["target"][3:].rstrip("a"), variant["target"].endswith("a")
        runs = int(number) == has if exact else int(number) <= has
        return (int(number), exact) if runs else (-1, False)

    def largest(variant):
        return [size["high"] for size in variant.get("sizes", [])]

    # Of ranges of a size that nothing states, the one with the largest value.
    best = max(suited, key=lambda v: (chip(v), largest(v)))
    if chip(best)[0] < 0:
        raise Wrong(f"no variant runs on sm_{has}: build one for it")
    return best, [high if value is None else value for value, high in zip(values, largest(best))]


class Kernels:
    """The kernels of a folder for the sizes that arrays and numbers state, loaded into the current context."""

    def __init__(self, folder, device, label=None, arrays={}, numbers={}):
        self.manifest, self.sizes = choose(variants_of(folder), device, label, arrays, numbers)
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
        grid = self.grid(kernel)
        config = Config((c.c_uint * 3)(*grid), (c.c_uint * 3)(*kernel["block"]), kernel["shared_bytes"], None, held,
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
            config.grid[0] = min(grid[0], resident)
        return kernel, function, config, held

    def grid(self, kernel):
        """The blocks that have work at the sizes: `times * ceil(size / per)`, at least 1, where the number of blocks follows from a size."""
        follows = kernel.get("clips", [None] * 3)
        parts = [f and max(1, f["times"] * -(-self.sizes[f["size"]] // f["per"])) for f in follows]
        return [blocks if part is None else min(blocks, part) for blocks, part in zip(kernel["grid"], parts)]

    def shape(self, argument):
        """The extents of an argument at the sizes: a dynamic size is the outermost extent."""
        outermost = [self.sizes[argument["dynamic"]]] if "dynamic" in argument else argument["shape"][:1]
        return outermost + argument["shape"][1:]

    def bytes(self, argument):
        """The bytes of an argument at the sizes; the manifest has those of the largest."""
        missing = sum(argument["shape"][:1]) - sum(self.shape(argument)[:1])
        return argument["bytes"] - missing * sum(argument["strides"][:1]) * BITS[argument["dtype"]] // 8

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
        if "size" in param:
            # A kernel takes a size in units of what it is a multiple of.
            return c.c_uint32(self.sizes[param["size"]] // self.manifest["sizes"][param["size"]]["by"])
        spec = dict(param["tensor_map"])
        if "dynamic" in spec:
            dimension, size = spec["dynamic"]
            spec["extents"] = [self.sizes[size] if n == dimension else e for n, e in enumerate(spec["extents"])]
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


def host(argument, shape, size, array, file):
    """The array of an argument of this shape and size in bytes: what was read of its file, or drawn."""
    dtype = argument["dtype"]
    if array is not None:
        fits = array.nbytes == size if dtype not in NUMPY else array.dtype == np.dtype(NUMPY[dtype]) and list(array.shape) == shape
        if not fits:
            raise Wrong(f"{argument['name']} is {dtype}{shape}, and {file} holds {array.dtype}{list(array.shape)}")
        return np.ascontiguousarray(array)
    if dtype not in NUMPY:
        return np.random.default_rng(1).integers(0, 256, size, np.uint8)
    drawn = np.random.default_rng(1).random(size * 8 // BITS[dtype]) - 0.5
    if dtype == "bool":
        return drawn > 0
    return (drawn * (1 if NUMPY[dtype][0] == "f" else 8)).astype(NUMPY[dtype])


def read(folder, words):
    """The arrays of the files that are inputs, and the numbers of sizes. What an artefact does not know is refused with what it knows."""
    variants = variants_of(folder)
    access = {a["name"]: a["access"] for v in variants for a in v["arguments"]}
    sizes = sorted({size["name"] for v in variants for size in v.get("sizes", [])})
    arrays, numbers, files = {}, {}, {}
    for word in words:
        name, is_word, value = word.partition("=")
        if is_word and name in sizes:
            if not value.isdigit():
                raise Wrong(f"{word}: {name} is a size, such as {name}=64")
            numbers[name] = int(value)
        elif is_word and name in access:
            files[name] = value
            if access[name] != "write":
                try:
                    arrays[name] = np.load(value)
                except (OSError, ValueError) as error:
                    raise Wrong(f"{word}: {error}") from error
        else:
            raise Wrong(f"{word}: write NAME=FILE for one of {', '.join(access)}" + "".join(f", or {n}=NUMBER" for n in sizes))
    return arrays, numbers, files


def main():
    if len(sys.argv) < 2:
        raise Wrong("write the folder of an artefact, as in: launch.py out A=a.npy C=c.npy")
    folder, _, label = sys.argv[1].partition(":")
    arrays, numbers, files = read(folder, sys.argv[2:])
    call("cuInit", 0)
    device, context = c.c_int(), POINTER()
    call("cuDeviceGet", c.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", c.byref(context), device)
    call("cuCtxSetCurrent", context)
    kernels = Kernels(folder, device, label or None, arrays, numbers)
    hosts, addresses = [], []
    for argument in kernels.manifest["arguments"]:
        name, size = argument["name"], kernels.bytes(argument)
        hosts.append(host(argument, kernels.shape(argument), size, arrays.get(name), files.get(name)))
        addresses.append(allocate(size))
        call("cuMemcpyHtoD_v2", ADDRESS(addresses[-1]), hosts[-1].ctypes.data_as(POINTER), c.c_size_t(hosts[-1].nbytes))
    kernels.launch(addresses)
    call("cuCtxSynchronize")
    for argument, array, address in zip(kernels.manifest["arguments"], hosts, addresses):
        if argument["access"] == "read":
            continue
        shape = kernels.shape(argument)
        call("cuMemcpyDtoH_v2", array.ctypes.data_as(POINTER), ADDRESS(address), c.c_size_t(array.nbytes))
        if argument["name"] in files:
            packed = argument["dtype"] not in NUMPY
            np.save(files[argument["name"]], array if packed else array.reshape(shape))
        print(f"{argument['name']}: {argument['dtype']}{shape}, first elements {array.ravel()[:4]}")


if __name__ == "__main__":
    try:
        main()
    except Wrong as error:
        sys.exit(f"launch.py: {error}")
