#!/usr/bin/env python3
"""Holds certificates against the hardware's counters.

    python3 benches/certificates_ncu.py PATH/TO/warploom OUT.json

For five kernels: `warploom explain --certificates --json` says what the lowered program and its PTX cost, and `ncu` counts
what one launch of the same schedule did. Prints both with their ratios, and writes all figures to OUT.json. Needs a GPU,
`ncu` on the PATH (or named by --ncu), and the right to read its counters.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# Title, and the arguments by which `warploom dump` makes the schedule.
KERNELS = [
    ("gpu_v3", [str(EXAMPLES / "gpu_v3.loom")]),
    ("mlc_shared", [str(EXAMPLES / "mlc_shared.loom")]),
    ("d2l", [str(EXAMPLES / "d2l.loom")]),
    ("window_sum_shared", [str(EXAMPLES / "window_sum_shared.loom")]),
    ("recommended 1024", ["--gemm", "1024x1024x1024"]),
]

# A figure of the certificate, and the counter that measures it. ncu's tables of the metrics of nvprof have the names.
COUNTERS = [
    ("shared_load_requests", "smsp__inst_executed_op_shared_ld.sum"),
    ("shared_load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    ("shared_store_requests", "smsp__inst_executed_op_shared_st.sum"),
    ("shared_store_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
    ("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global_store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
    ("global_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("instructions", "smsp__inst_executed.sum"),
    ("fma", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
]

# Counted too where the device has them: bank conflicts, wavefronts as patched code counts them (without what arbitration
# adds), and asynchronous copies, which the certificate counts as a load of device memory and a store to shared memory.
BESIDE = re.compile(
    r"(l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_(ld|st)"
    r"|smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared(_op_(ld|st|ldgsts))?"
    r"|smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_(ld|st)"
    r"|(smsp__|sm__)(sass_)?inst_executed_op_ldgsts\w*"
    r"|l1tex__\w*(wavefronts|t_sectors|t_requests)\w*ldgsts\w*)$"
)


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def certified(warploom, schedule):
    """Sums over the kernels of a schedule, of the lowered program and of its PTX."""
    kernels = json.loads(output([warploom, "explain", "--certificates", "--json", schedule]))["kernels"]
    lowered, ptx = {}, {}
    for kernel in kernels:
        compiled = (kernel["compiled"] or {}).get("traffic")
        for name, _ in COUNTERS:
            lowered[name] = lowered.get(name, 0) + kernel["totals"][name]
            if compiled and name in compiled and ptx is not None:
                ptx[name] = ptx.get(name, 0) + compiled[name]
        if not compiled:
            ptx = None
    return lowered, ptx or {}


def rows(log):
    """The rows of ncu's table, which begins behind its messages and has a row of units."""
    lines = [line for line in log.read_text().splitlines() if line.startswith('"')]
    table = list(csv.DictReader(lines))
    return [row for row in table if row.get("ID", "").strip().isdigit()]


def number(text):
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def counted(ncu, warploom, schedule, metrics, folder):
    """Sums over the launches of a schedule."""
    log = Path(folder) / "ncu.csv"
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--log-file", str(log), "--force-overwrite", "--metrics", ",".join(metrics)]
    output(command + [warploom, "run", schedule, "--device", "0", "--once"])
    sums = {}
    for row in rows(log):
        for metric in metrics:
            value = number(row.get(metric))
            if value is not None:
                sums[metric] = sums.get(metric, 0) + value
    if not sums:
        raise RuntimeError(f"ncu counted nothing:\n{log.read_text()}")
    return sums


def beside(ncu):
    """The counters of BESIDE that the device has."""
    try:
        words = [line.split() for line in output([ncu, "--query-metrics"]).splitlines()]
    except RuntimeError as error:
        print(f"without the counters beside: {error}", file=sys.stderr)
        return []
    return sorted({w[0] + ".sum" for w in words if w and BESIDE.match(w[0])})


def ratio(a, b):
    if a is None or b is None:
        return "-"
    return f"{a / b:.4f}" if b else ("1.0000" if a == 0 else "inf")


def shown(n):
    return "-" if n is None else f"{n:,.0f}"


def compare(title, lowered, ptx, measured):
    print(f"\n{title}")
    print(f"  {'':26}{'lowered':>18}{'PTX':>18}{'ncu':>18}{'lowered/ncu':>16}{'PTX/ncu':>16}")
    for name, metric in COUNTERS:
        low, compiled, real = lowered.get(name), ptx.get(name), measured.get(metric)
        columns = f"{shown(low):>18}{shown(compiled):>18}{shown(real):>18}"
        print(f"  {name:26}{columns}{ratio(low, real):>16}{ratio(compiled, real):>16}")
    for metric in sorted(set(measured) - {metric for _, metric in COUNTERS}):
        print(f"  {shown(measured[metric]):>18}  {metric}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warploom")
    parser.add_argument("out")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--target", default="sm_90")
    args = parser.parse_args()
    results, failures, more = [], 0, beside(args.ncu)
    with tempfile.TemporaryDirectory() as folder:
        for title, what in KERNELS:
            schedule = Path(folder) / "schedule.loom"
            try:
                text = output([args.warploom, "dump", *what, "--target", args.target, "--emit", "schedule"])
                schedule.write_text(text)
                lowered, ptx = certified(args.warploom, str(schedule))
                metrics = [metric for _, metric in COUNTERS]
                measured = counted(args.ncu, args.warploom, str(schedule), metrics, folder)
                if more:
                    measured.update(counted(args.ncu, args.warploom, str(schedule), more, folder))
            except RuntimeError as error:
                failures += 1
                print(f"{title}: {error}", file=sys.stderr)
                continue
            compare(title, lowered, ptx, measured)
            results.append({"kernel": title, "lowered": lowered, "ptx": ptx, "ncu": measured})
    Path(args.out).write_text(json.dumps(results, indent=2) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
