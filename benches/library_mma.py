#!/usr/bin/env python3
"""What the vendor's own kernels by mma.sync reach on a chip that has wgmma, against the library's choice.

    python3 benches/library_mma.py 4096 8192 > RESULT.jsonl

cuBLASLt still ships its Ampere kernels for Hopper. This asks for every algorithm with every tile and number of stages that it
accepts, times each, and prints the best of those that are no wgmma kernels (by name), one JSON line a GEMM. Needs PyTorch
(for memory, timing and the kernels' names) and cuBLASLt 13; row-major C = A * B is asked for as the column-major product of B
and A. Data as in `warploom bench`: uniform in [-0.5, 0.5).
"""

import ctypes as c
import json
import sys

import torch

R16F, R32F, COMPUTE_32F = 2, 0, 68
CAP_TILES, CAP_STAGES = 6, 13
CFG_TILE, CFG_STAGES, CFG_SWIZZLE = 1, 6, 4
TRANSA, TRANSB = 3, 4
WGMMA = ("nvjet", "sm90", "hopper", "gmma")

lt = c.CDLL("libcublasLt.so.13")


class Algo(c.Structure):
    _fields_ = [("data", c.c_uint64 * 8)]


class Heuristic(c.Structure):
    _fields_ = [("algo", Algo), ("workspace", c.c_size_t), ("state", c.c_int), ("waves", c.c_float), ("reserved", c.c_int * 4)]


def ok(code, what):
    if code:
        raise SystemExit(f"{what}: cuBLASLt says {code}")


def capability(algo, attribute):
    size = c.c_size_t()
    lt.cublasLtMatmulAlgoCapGetAttribute(c.byref(algo), attribute, None, 0, c.byref(size))
    values = (c.c_uint32 * max(1, size.value // 4))()
    if size.value:
        lt.cublasLtMatmulAlgoCapGetAttribute(c.byref(algo), attribute, values, size, c.byref(size))
    return list(values)[: size.value // 4] or [0]


class Product:
    """Row-major C[m, n] = A * B of f16 with f32 accumulators; `layout` says which operands are transposed."""

    def __init__(self, m, n, k, layout):
        self.m, self.n, self.k = m, n, k
        # At NT B is [n, k]. The names are A's letter, then B's.
        ta, tb = layout[0] == "T", layout[1] == "T"
        make = lambda *s: torch.rand(*s, device="cuda").sub_(0.5).half()
        self.a = make(*((k, m) if ta else (m, k)))
        self.b = make(*((n, k) if tb else (k, n)))
        self.c = torch.zeros(m, n, device="cuda", dtype=torch.half)
        self.handle = c.c_void_p()
        ok(lt.cublasLtCreate(c.byref(self.handle)), "create")
        self.desc = c.c_void_p()
        ok(lt.cublasLtMatmulDescCreate(c.byref(self.desc), COMPUTE_32F, R32F), "describe")
        # Column-major: the first operand is B, the second A.
        for attribute, flag in ((TRANSA, tb), (TRANSB, ta)):
            value = c.c_int32(int(flag))
            ok(lt.cublasLtMatmulDescSetAttribute(self.desc, attribute, c.byref(value), 4), "transpose")
        self.layouts = []
        for t in (self.b, self.a, self.c):
            l = c.c_void_p()
            ok(lt.cublasLtMatrixLayoutCreate(c.byref(l), R16F, c.c_uint64(t.shape[1]), c.c_uint64(t.shape[0]), c.c_int64(t.shape[1])), "layout")
            self.layouts.append(l)
        self.workspace = torch.empty(64 << 20, device="cuda", dtype=torch.uint8)
        self.one, self.zero = c.c_float(1), c.c_float(0)

    def run(self, algo):
        x, y, z = self.layouts
        return lt.cublasLtMatmul(
            self.handle, self.desc, c.byref(self.one), c.c_void_p(self.b.data_ptr()), x, c.c_void_p(self.a.data_ptr()), y,
            c.byref(self.zero), c.c_void_p(self.c.data_ptr()), z, c.c_void_p(self.c.data_ptr()), z, c.byref(algo),
            c.c_void_p(self.workspace.data_ptr()), c.c_size_t(self.workspace.numel()), c.c_void_p(torch.cuda.current_stream().cuda_stream))

    def default(self):
        pref, found, result = c.c_void_p(), c.c_int(), Heuristic()
        ok(lt.cublasLtMatmulPreferenceCreate(c.byref(pref)), "preference")
        size = c.c_uint64(self.workspace.numel())
        ok(lt.cublasLtMatmulPreferenceSetAttribute(pref, 1, c.byref(size), 8), "workspace")
        x, y, z = self.layouts
        ok(lt.cublasLtMatmulAlgoGetHeuristic(self.handle, self.desc, x, y, z, z, pref, 1, c.byref(result), c.byref(found)), "heuristic")
        return result.algo

    def algorithms(self):
        ids, found = (c.c_int * 256)(), c.c_int()
        types = (COMPUTE_32F, R32F, R16F, R16F, R16F, R16F)
        ok(lt.cublasLtMatmulAlgoGetIds(self.handle, *types, 256, ids, c.byref(found)), "algorithms")
        for i in ids[: found.value]:
            algo = Algo()
            if lt.cublasLtMatmulAlgoInit(self.handle, *types, i, c.byref(algo)):
                continue
            for tile in capability(algo, CAP_TILES):
                for stages in capability(algo, CAP_STAGES):
                    for swizzle in (0, 1):
                        one = Algo()
                        c.memmove(c.byref(one), c.byref(algo), c.sizeof(Algo))
                        for attribute, value in ((CFG_TILE, tile), (CFG_STAGES, stages), (CFG_SWIZZLE, swizzle)):
                            v = c.c_uint32(value)
                            lt.cublasLtMatmulAlgoConfigSetAttribute(c.byref(one), attribute, c.byref(v), 4)
                        result = Heuristic()
                        x, y, z = self.layouts
                        if lt.cublasLtMatmulAlgoCheck(self.handle, self.desc, x, y, z, z, c.byref(one), c.byref(result)) == 0:
                            yield (i, tile, stages, swizzle), one

    def time(self, algo, runs):
        for _ in range(2):
            if self.run(algo):
                return None
        torch.cuda.synchronize()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(runs):
            self.run(algo)
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) * 1e3 / runs

    def name(self, algo):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            self.run(algo)
            torch.cuda.synchronize()
        return max(p.key_averages(), key=lambda e: e.self_device_time_total).key


def main():
    for size in map(int, sys.argv[1:] or ["4096", "8192"]):
        for layout in ("NN", "NT"):
            p = Product(size, size, size, layout)
            default = p.default()
            timed = [(t, key, a) for key, a in p.algorithms() if (t := p.time(a, 3)) is not None]
            timed.sort(key=lambda e: e[0])
            best = []
            for t, key, a in timed:
                name = p.name(a)
                if not any(w in name.lower() for w in WGMMA):
                    best.append((t, key, a, name))
                    if len(best) == 4:
                        break
            # The library's choice, and then each of the best, for a second under load.
            runs = max(20, int(1e6 / (timed[0][0] if timed else 1e3)))
            reference = p.time(default, runs)
            rows = [(p.time(a, runs), key, name) for _, key, a, name in best]
            again = p.time(default, runs)
            if not rows:
                print(json.dumps({"size": size, "layout": layout, "accepted": len(timed), "missing": "no kernel by mma.sync"}), flush=True)
                continue
            t, key, name = min(rows)
            print(json.dumps({"size": size, "layout": layout, "accepted": len(timed), "kernel": name, "algorithm": key,
                              "tflops": round(2e-6 * size**3 / t, 1), "ratio": round(min(reference, again) / t, 3),
                              "library": p.name(default), "library_tflops": round(2e-6 * size**3 / min(reference, again), 1),
                              "device": torch.cuda.get_device_name()}), flush=True)


main()
