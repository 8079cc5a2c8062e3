"""Times kernels that `warploom dump --out DIR` wrote beside PyTorch, in one process and by one clock.

    warploom dump rows.loom --out out/softmax-8192x4096
    python3 benches/beside_torch.py out/* [--json RESULT]

What a kernel computes is said by the program's name: copy, softmax, layernorm, rmsnorm, transpose, conv, attention,
batched_matvec, mlp, w4a16, gemm, .. (TORCH below). Each result is compared with PyTorch's in f64 where that fits, else in f32. A sample is a CUDA graph of
many launches over as many sets of buffers as exceed the second-level cache; the median of 15 samples counts, and the samples
of all columns alternate. The copy moves as many bytes as the kernel's inputs and outputs have, half of them read and half of them
written: the fastest of all copies here that move at least as many, by `copy_` and by the copies among the folders.
"""

import argparse
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "launch"))
import launch  # noqa: E402

EPS = 1e-5
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "s8": torch.int8,
         "s32": torch.int32, "s64": torch.int64, "u8": torch.uint8}


def convolution(x, w):
    """x is n, h, w, c and w is k, r, s, c, as they lie in memory: PyTorch's channels last."""
    return F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1)


def attention(q, k, v):
    """A batch of one: PyTorch's fused kernels take four dimensions."""
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def dequantised(w, s):
    """Weights of 4 bits, two a byte, the lower half first, times the scale of their group of elements along k."""
    signed = torch.stack([(w << 4).view(torch.int8) >> 4, w.view(torch.int8) >> 4], -1).flatten(-2)
    return signed.to(s.dtype) * s.repeat_interleave(signed.shape[-1] // s.shape[-1], -1)


# What a program's name stands for: from its inputs in order to the result.
TORCH = {
    "copy": lambda x: x.clone(),
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, EPS),
    "rmsnorm": lambda x, g: F.rms_norm(x, x.shape[-1:], g, EPS),
    "row_sums": lambda x: x.sum(-1, dtype=torch.float32),
    "transpose": lambda x: x.t().contiguous(),
    "conv": convolution,
    "attention": attention,
    "batched_matvec": lambda a, x: torch.bmm(a, x.unsqueeze(-1)).squeeze(-1),
    "mlp": lambda a, b, bias, r: F.gelu(a @ b.t() + bias) + r,
    "w4a16": lambda x, w, s: x @ dequantised(w, s).t(),
    "gemm nt": lambda a, b: a @ b.t(),
    "gemm nn": lambda a, b: a @ b,
}

# What is timed beside a program in place of the above, and what is made of its inputs before the clock runs.
TIMED = {
    "w4a16": (lambda x, w: x @ w.t(), lambda x, w, s: (x, dequantised(w, s))),
}


def made(argument, generator):
    shape = argument["shape"] or [1]
    if argument["dtype"] in ("s4", "u4"):
        # Two elements a byte.
        shape = [*shape[:-1], shape[-1] // 2]
        return torch.randint(0, 256, shape, device="cuda", generator=generator, dtype=torch.uint8)
    dtype = TYPES[argument["dtype"]]
    drawn = torch.randn(shape, device="cuda", generator=generator)
    return drawn.to(dtype) if dtype.is_floating_point else (drawn * 4).round().to(dtype)


class Subject:
    """A folder: its kernels, and sets of buffers that exceed the cache together."""

    def __init__(self, folder):
        self.name = os.path.basename(folder.rstrip("/"))
        self.kernels = launch.Kernels(folder, 0)
        self.program = self.kernels.manifest["name"]
        arguments = self.kernels.manifest["arguments"]
        self.bytes = sum(a["bytes"] for a in arguments)
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.count = max(1, min(24, math.ceil(3 * l2 / self.bytes)))
        generator = torch.Generator("cuda").manual_seed(1)
        self.sets = [[made(a, generator) for a in arguments] for _ in range(self.count)]
        self.inputs = [n for n, a in enumerate(arguments) if a["access"] == "read"]
        self.outputs = [n for n, a in enumerate(arguments) if a["access"] != "read"]
        name = self.program
        if name == "gemm":
            name += " nt" if "B[j, k]" in self.kernels.manifest["schedule"] else " nn"
        self.reference = TORCH.get(name)
        self.timed, prepare = TIMED.get(name, (self.reference, lambda *inputs: inputs))
        self.prepared = [prepare(*[s[i] for i in self.inputs]) for s in self.sets]

    def ours(self, n):
        self.kernels.launch([t.data_ptr() for t in self.sets[n]], torch.cuda.current_stream().cuda_stream)

    def theirs(self, n):
        return self.timed(*self.prepared[n])

    def error(self):
        """The largest difference to PyTorch's result in a wide type, as a share of the largest value."""
        if self.reference is None:
            return None
        self.ours(0)
        torch.cuda.synchronize()
        wide = torch.float64 if self.bytes < 1 << 28 and self.program not in ("conv", "attention") else torch.float32
        found = self.sets[0][self.outputs[0]].to(wide)
        inputs = [self.sets[0][i] for i in self.inputs]
        inputs = [t.to(wide) if t.is_floating_point() else t for t in inputs]
        expected = self.reference(*inputs).reshape(found.shape)
        if not torch.isfinite(found).all():
            return math.inf
        return ((found - expected).abs().max() / expected.abs().max()).item()


def graph(work, count, launches):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for n in range(count):
            work(n)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        kept = [work(n % count) for n in range(launches)]
    made.kept = kept
    return made


def samples(graphs, launches, repeats=15):
    """Microseconds of a launch, of each graph: medians; the samples alternate."""
    times = [[] for _ in graphs]
    for _ in range(repeats):
        for g, out in zip(graphs, times):
            if g is None:
                continue
            start, end = torch.cuda.Event(True), torch.cuda.Event(True)
            start.record()
            g.replay()
            end.record()
            torch.cuda.synchronize()
            out.append(start.elapsed_time(end) * 1e3 / launches)
    return [sorted(t)[len(t) // 2] if t else math.nan for t in times]


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folders", nargs="+")
    words.add_argument("--json")
    words = words.parse_args()
    launch.call("cuInit", 0)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True
    torch.zeros(1, device="cuda")
    rows, copies = [], []
    for folder in words.folders:
        torch.cuda.empty_cache()
        subject = Subject(folder)
        error = subject.error()
        first = subject.sets[0]
        launches = max(subject.count, 12 if subject.bytes < 1 << 26 else 6)
        like = subject.sets[0][subject.outputs[0]]
        half = (subject.bytes // 2 + 15) // 16 * 16
        halves = [[torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(subject.count)]

        def copied(n):
            return halves[n][1].copy_(halves[n][0])
        graphs = [graph(subject.ours, subject.count, launches)]
        graphs.append(graph(subject.theirs, subject.count, launches) if subject.reference else None)
        graphs.append(graph(copied, subject.count, launches))
        ours, theirs, copy = samples(graphs, launches)
        copies.append((half, min(ours, copy) if subject.program == "copy" else copy))
        shape = "x".join(str(s) for s in first[subject.inputs[0]].shape)
        rows.append({"name": subject.name, "program": subject.program, "shape": shape, "output_bytes": like.nbytes, "copied_bytes": half, "us": ours,
                     "torch_us": theirs, "copy_us": copy, "error": error})
        del graphs, halves, subject, first, like
    for row in rows:
        row["copy_us"] = min(us for half, us in copies if half >= row["copied_bytes"])
        row["of_copy"] = row["copy_us"] / row["us"]
        row["torch_of_copy"] = row["copy_us"] / row["torch_us"]
    print(f"{'kernel':44} {'us':>9} {'torch us':>9} {'copy us':>9} {'of copy':>8} {'torch':>6} {'error':>9}")
    for r in rows:
        error = "-" if r["error"] is None else f"{r['error']:.1e}"
        print(f"{r['name'][:44]:44} {r['us']:9.2f} {r['torch_us']:9.2f} {r['copy_us']:9.2f} {r['of_copy']:8.3f} {r['torch_of_copy']:6.2f} {error:>9}")
    if words.json:
        with open(words.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
