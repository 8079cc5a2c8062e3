"""Times s8 NT GEMMs of TileLang beside warploom's, in one process and on the same data.

    for n in 2048 4096 8192 16384; do warploom build --gemm $n --dtype s8 --layout NT --target sm_90a --c -o FOLDER/$n; done
    python3 benches/tilelang_s8.py FOLDER

It needs PyTorch, TileLang, nvcc and gcc. Each result is compared with torch._int_mm. The kernels of a size take turns in random order, 21 times: each
runs twice, then for about 20 ms between two events. The clock is the one that the power limit gives.
"""

import ctypes
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import tilelang
import tilelang.language as T
import torch

# Rows, columns and k of a block, stages, threads beside the producer's.
TILES = [(128, 256, 128, 3, 256), (128, 256, 128, 4, 256), (256, 128, 128, 3, 256)]


def tile_program(n, rows, columns, depth, stages, threads):
    @T.prim_func
    def main(A: T.Tensor((n, n), "int8"), B: T.Tensor((n, n), "int8"), C: T.Tensor((n, n), "int32")):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(n, rows), threads=threads) as (x, y):
            a = T.alloc_shared((rows, depth), "int8")
            b = T.alloc_shared((columns, depth), "int8")
            c = T.alloc_fragment((rows, columns), "int32")
            T.use_swizzle(panel_size=10)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(n, depth), num_stages=stages):
                T.copy(A[y * rows, k * depth], a)
                T.copy(B[x * columns, k * depth], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[y * rows, x * columns])

    return main


class Shapes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64 * 2) for name in "abc"]


def launcher(folder, n):
    """The launch of the kernels in a folder that `warploom build --c` wrote."""
    library = str(pathlib.Path(tempfile.mkdtemp()) / "gemm.so")
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", "-o", library, str(folder / "gemm.c"), "-ldl"])
    gemm, kernels, variant = ctypes.CDLL(library), ctypes.c_void_p(), ctypes.c_void_p()
    shapes = Shapes((n, n), (n, n), (n, n))
    for code in (gemm.gemm_load(ctypes.byref(kernels)), gemm.gemm_find(kernels, ctypes.byref(shapes), ctypes.byref(variant))):
        assert code == 0, code

    def launch(*arrays):
        pointers = [ctypes.c_void_p(array.data_ptr()) for array in arrays]
        code = gemm.gemm_launch(variant, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), *pointers, ctypes.c_void_p(0))
        assert code == 0, code

    return launch


def micros(launch, repeats):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    launch()
    launch()
    begin.record()
    for _ in range(repeats):
        launch()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats * 1e3


def main(folder):
    sizes = sorted(int(path.name) for path in folder.iterdir())
    compiled = lambda tile: tilelang.compile(tile_program(*tile), target="cuda")
    with ThreadPoolExecutor() as pool:
        tiles = [(n, *tile) for n in sizes for tile in TILES]
        made = dict(zip(tiles, pool.map(compiled, tiles)))
    random.seed(1)
    for n in sizes:
        a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8, device="cuda") for _ in range(2))
        c, want = torch.empty((n, n), dtype=torch.int32, device="cuda"), torch._int_mm(a, b.t())
        kernels = {"warploom": launcher(folder / str(n), n)}
        kernels |= {"TileLang %d x %d x %d, %d stages" % tile[1:5]: kernel for tile, kernel in made.items() if tile[0] == n}
        for name, kernel in kernels.items():
            c.fill_(-7)
            kernel(a, b, c)
            assert (c == want).all(), name
        times = {name: [] for name in kernels}
        repeats = max(3, int(0.02 * 1.4e15 / (2 * n**3)))
        for _ in range(21):
            for name, kernel in random.sample(list(kernels.items()), len(kernels)):
                times[name].append(micros(lambda: kernel(a, b, c), repeats))
        for name, us in times.items():
            print(f"| {n} | {name} | {statistics.median(us):.1f} | {min(us):.1f} |", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
