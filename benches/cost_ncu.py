#!/usr/bin/env python3
"""Compares cost reports with the hardware's counters.

    python3 benches/cost_ncu.py PATH/TO/warploom OUT.json

For some kernels, with and without bulk copies and wgmma: `warploom explain --cost --json` reports what the lowered program
and its PTX cost, and `ncu` counts what one launch of the same schedule does. Prints both with their ratios, and writes all figures to OUT.json. Needs a GPU,
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

# Of those whose instructions a device without them refuses: with the chip that they are for.
HOPPER = [
    (name, [str(EXAMPLES / f"{name}.loom")])
    for name in ["transpose_tma", "scale_tma", "worked_example", "wgmma_f16_pingpong", "wgmma_s8"]
]

# A figure of the cost report, and the counter that measures it. ncu's tables of the metrics of nvprof have the names.
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

SECTOR = 32

# What bulk copies and wgmma add, as weighted sums of figures of the cost report, and the counters that may measure it:
# all those of the first group of which the device has any, summed. A multicast is read from L2 once and arrives in every block.
# Lines are compared with requests at L2, of which each is for one line; what other units ask for there is small.
ENGINES = [
    (
        "tensor instructions",
        {"tensor_instructions": 1},
        [r"sm__inst_executed_pipe_tensor", r"sm__inst_executed_pipe_tensor_op_(gmma|hmma|imma|bmma|qgmma)\w*"],
    ),
    (
        "bytes read from L2 by multiprocessors",
        {"global_load_sectors": SECTOR, "bulk_landed_bytes": 1},
        [r"l1tex__m_xbar2l1tex_read_bytes"],
    ),
    (
        "bytes written to L2 by multiprocessors",
        {"global_store_sectors": SECTOR, "bulk_store_sectors": SECTOR},
        [r"l1tex__m_l1tex2xbar_write_bytes"],
    ),
    (
        "sectors read at L2",
        {"global_load_sectors": 1, "bulk_load_sectors": 1},
        [r"lts__t_sectors_srcunit_tex_op_read", r"lts__t_sectors_op_read"],
    ),
    (
        "sectors written at L2",
        {"global_store_sectors": 1, "bulk_store_sectors": 1},
        [r"lts__t_sectors_srcunit_tex_op_write", r"lts__t_sectors_op_write"],
    ),
    (
        "lines of bulk loads, requests at L2",
        {"bulk_load_lines": 1, "bulk_store_lines": 1},
        [r"lts__t_requests_srcunit_tex", r"lts__t_requests"],
    ),
]

# Figures of the cost report that only ENGINES name.
MORE = sorted({name for _, figures, _ in ENGINES for name in figures} - {name for name, _ in COUNTERS})

# Counted too where the device has them: bank conflicts, wavefronts as patched code counts them (without what arbitration
# adds), and asynchronous copies, which the cost report counts as a load of device memory and a store to shared memory.
BESIDE = re.compile(
    r"(l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_(ld|st)"
    r"|smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared(_op_(ld|st|ldgsts))?"
    r"|smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_(ld|st)"
    r"|(smsp__|sm__)(sass_)?inst_executed_op_ldgsts\w*"
    r"|l1tex__\w*(wavefronts|t_sectors|t_requests)\w*ldgsts\w*"
    r"|(smsp__|sm__)(sass_)?inst_executed_op_\w*(tma|utma|bulk)\w*"
    r"|l1tex__m_(xbar2l1tex_read|l1tex2xbar_write)_(bytes|sectors)\w*(tma|bulk)\w*"
    r"|(sm__|idc__)\w*mbarrier\w*)$"
)


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def reported(warploom, schedule):
    """Sums over the kernels of a schedule, of the lowered program and of its PTX."""
    kernels = json.loads(output([warploom, "explain", "--cost", "--json", schedule]))["kernels"]
    lowered, ptx = {}, {}
    for kernel in kernels:
        compiled = (kernel["compiled"] or {}).get("traffic")
        for name in [name for name, _ in COUNTERS] + MORE:
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


def known(ncu):
    """The counters that the device has."""
    try:
        words = [line.split() for line in output([ncu, "--query-metrics"]).splitlines()]
    except RuntimeError as error:
        print(f"without the counters beside: {error}", file=sys.stderr)
        return []
    return sorted({w[0] for w in words if w})


def matching(names, patterns):
    """The counters of the first pattern that any matches, as sums."""
    for pattern in patterns:
        found = [name + ".sum" for name in names if re.fullmatch(pattern, name)]
        if found:
            return found
    return []


def engines(lowered, measured, names):
    """What bulk copies and wgmma cost, and what the device's counters measure: rows of title, reported, measured."""
    table = []
    for title, figures, patterns in ENGINES:
        metrics = matching(names, patterns)
        values = [measured[metric] for metric in metrics if metric in measured]
        said = sum(lowered.get(name, 0) * factor for name, factor in figures.items())
        table.append((title, said, sum(values) if values else None, metrics))
    return table


def ratio(a, b):
    if a is None or b is None:
        return "-"
    return f"{a / b:.4f}" if b else ("1.0000" if a == 0 else "inf")


def shown(n):
    return "-" if n is None else f"{n:,.0f}"


def compare(title, lowered, ptx, measured, table):
    print(f"\n{title}")
    print(f"  {'':26}{'lowered':>18}{'PTX':>18}{'ncu':>18}{'lowered/ncu':>16}{'PTX/ncu':>16}")
    for name, metric in COUNTERS:
        low, compiled, real = lowered.get(name), ptx.get(name), measured.get(metric)
        columns = f"{shown(low):>18}{shown(compiled):>18}{shown(real):>18}"
        print(f"  {name:26}{columns}{ratio(low, real):>16}{ratio(compiled, real):>16}")
    for row_title, said, real, metrics in table:
        print(f"  {row_title:44}{shown(said):>18}{shown(real):>36}{ratio(said, real):>16}  {' + '.join(metrics)}")
    named = {metric for *_, metrics in table for metric in metrics} | {metric for _, metric in COUNTERS}
    for metric in sorted(set(measured) - named):
        print(f"  {shown(measured[metric]):>18}  {metric}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warploom")
    parser.add_argument("out")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--target", default="sm_90")
    args = parser.parse_args()
    results, failures, names = [], 0, known(args.ncu)
    more = {name + ".sum" for name in names if BESIDE.match(name)}
    more = sorted(more.union(*(matching(names, patterns) for _, _, patterns in ENGINES)))
    kernels = KERNELS + (HOPPER if args.target.startswith("sm_9") else [])
    with tempfile.TemporaryDirectory() as folder:
        for title, what in kernels:
            target = "sm_90a" if (title, what) in HOPPER else args.target
            schedule = Path(folder) / "schedule.loom"
            try:
                text = output([args.warploom, "dump", *what, "--target", target, "--emit", "schedule"])
                schedule.write_text(text)
                lowered, ptx = reported(args.warploom, str(schedule))
                metrics = [metric for _, metric in COUNTERS]
                measured = counted(args.ncu, args.warploom, str(schedule), metrics, folder)
                if more:
                    measured.update(counted(args.ncu, args.warploom, str(schedule), more, folder))
            except RuntimeError as error:
                failures += 1
                print(f"{title}: {error}", file=sys.stderr)
                continue
            table = engines(lowered, measured, names)
            compare(title, lowered, ptx, measured, table)
            rows_of = [{"what": t, "reported": said, "ncu": real, "counters": m} for t, said, real, m in table]
            results.append({"kernel": title, "lowered": lowered, "ptx": ptx, "ncu": measured, "engines": rows_of})
    Path(args.out).write_text(json.dumps(results, indent=2) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
