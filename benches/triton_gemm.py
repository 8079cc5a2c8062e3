#!/usr/bin/env python3
"""Triton against cuBLAS for square GEMMs of f16, as a row of comparison for the tables here.

    python3 benches/triton_gemm.py [SIZE ..] [--layout NN|NT]

Both run in one process on one device, in turns (ABBA) behind a preheating, with L2 made cold by reading, on uniform data in
[-0.5, 0.5): the rules of `warploom bench`. Prints a line of JSON for each size with the median times, the median of the paired
ratios of speed, and the tiles that won.
"""

import argparse
import json
import statistics

import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, m, n, k, am, ak, bk, bn, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    band = tile // (GROUP * columns)
    high = min(rows - band * GROUP, GROUP)
    i = band * GROUP + tile % (GROUP * columns) % high
    j = tile % (GROUP * columns) // high
    im, jn, kk = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa, pb = a + im[:, None] * am + kk[None, :] * ak, b + kk[:, None] * bk + jn[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, tl.cdiv(k, BK)):
        left = k - k0 * BK
        x = tl.load(pa, mask=(im[:, None] < m) & (kk[None, :] < left), other=0.0)
        y = tl.load(pb, mask=(kk[:, None] < left) & (jn[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK * ak
        pb += BK * bk
    tl.store(c + im[:, None] * cm + jn[None, :], acc.to(tl.float16), mask=(im[:, None] < m) & (jn[None, :] < n))


TILES = [(bm, bn, 64, stages, warps) for bm, bn, stages, warps in
         [(128, 256, 3, 8), (128, 256, 4, 8), (256, 128, 3, 8), (128, 128, 4, 4), (128, 128, 4, 8), (64, 128, 4, 4), (64, 64, 5, 4)]]


def triton_product(a, b, c, tiles):
    (m, k), n = a.shape, b.shape[1]
    bm, bn, bk, stages, warps = tiles
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    product[grid](a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0),
                  BM=bm, BN=bn, BK=bk, GROUP=8, num_stages=stages, num_warps=warps)


def timed(f, cold):
    cold.sum()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    f()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000


def row(size, layout, cold):
    def uniform():
        return torch.rand(size, size, device="cuda", dtype=torch.float32).sub_(0.5).to(torch.float16)

    a, b, c = uniform(), uniform(), torch.empty(size, size, device="cuda", dtype=torch.float16)
    b = b.t() if layout == "NT" else b
    works = []
    for tiles in TILES:
        try:
            triton_product(a, b, c, tiles)
            torch.cuda.synchronize()
        except Exception:  # too much shared memory for the chip
            continue
        torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
        works.append((statistics.median(timed(lambda: triton_product(a, b, c, tiles), cold) for _ in range(9)), tiles))
    best = min(works)[1]
    ours, library = lambda: triton_product(a, b, c, best), lambda: torch.matmul(a, b, out=c)
    for _ in range(max(3, int(2e6 / (2 * size**3 / 4e8)))):
        library()
    pairs = []
    for n in range(30):
        first, second = (ours, library) if n % 2 == 0 else (library, ours)
        x, y = timed(first, cold), timed(second, cold)
        pairs.append((x, y) if n % 2 == 0 else (y, x))
    return {"size": size, "layout": layout, "triton": triton.__version__, "device": torch.cuda.get_device_name(0), "tiles": best,
            "us": statistics.median(p[0] for p in pairs), "library_us": statistics.median(p[1] for p in pairs),
            "ratio": statistics.median(p[1] / p[0] for p in pairs)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=[1024, 2048, 4096, 8192])
    parser.add_argument("--layout", default="NN", choices=["NN", "NT"])
    args = parser.parse_args()
    cold = torch.empty(64 << 20, device="cuda", dtype=torch.float32).normal_()
    for size in args.sizes:
        print(json.dumps(row(size, args.layout, cold)), flush=True)


if __name__ == "__main__":
    main()
