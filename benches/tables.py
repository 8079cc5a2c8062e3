"""Turns records of `warploom bench` into the tables and the picture of the README.

    python3 benches/tables.py benches/results/FOLDER [README.md]

FOLDER holds suite.json (`bench --suite benches/tensor.suite --out FOLDER/suite`), hopper.json (the same of
benches/hopper.suite), ladder.jsonl (`bench --ladder --gemm 4096 --dtype f16,s8,s4 --layout NT --json > FOLDER/ladder.jsonl`)
and hopper_ladder.jsonl (`bench --ladder --gemm 4096 --dtype f16 --json`); any may be missing. The tables go between
the lines `<!-- tensor suite -->`, `<!-- hopper suite -->`, `<!-- tensor ladder -->`, `<!-- hopper ladder -->` and
`<!-- end -->` of the README, or to standard output without one; the picture of the ladder becomes FOLDER/tensor_ladder.svg. Nothing is measured or rounded up here: what
is missing in the records stays out of the tables.
"""

import json
import pathlib
import sys

LAYOUTS = ["NN", "NT", "TN", "TT"]
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"]


def size(shape):
    """4096x4096x4096 as 4096^3."""
    numbers = shape.split("x")
    return f"{numbers[0]}^3" if len(set(numbers)) == 1 and len(numbers) == 3 else shape


def why(entry, row):
    """Why there is no ratio."""
    return entry["error"].splitlines()[0] if row is None else row["library_missing"] or ""


def best(row):
    """The ratio to the fastest algorithm of the library, where that is not its own choice, and that of launches by themselves, where
    the ratio is one of graphs."""
    other, alone = row.get("library_best"), row.get("alone")
    of_best = f", {row['ratio'] / other['ratio']:.2f} of its best" if other else ""
    return of_best + (f", alone {alone['ratio']:.2f}" if alone else "")


def suite_table(record):
    """A line for each types and size, a column for each layout: the ratio to the library's own choice, and TFLOP/s (TOP/s).
    Rows against another GEMM are below."""
    same, others = {}, []
    for entry in record["rows"]:
        row = entry.get("row")
        if row is None or row["ratio"] is None:
            others.append((entry["asked"], "-", "-", why(entry, row)))
        elif row["beside"]:
            ratio = f"{row['ratio']:.2f}"
            others.append((entry["asked"], f"{row['us']:.1f}", ratio, f"cuBLAS {row['beside']}: {row['library_us']:.1f} us"))
        else:
            same.setdefault((row["dtype"], size(row["shape"])), {})[row["layout"]] = (entry, row)
    lines = ["| types | size | " + " | ".join(LAYOUTS) + " |", "|---|---|" + "---|" * len(LAYOUTS)]
    for (types, shape), cells in same.items():
        text = []
        for layout in LAYOUTS:
            entry, row = cells.get(layout, (None, None))
            text.append("" if row is None else f"{row['ratio']:.2f}{best(row)} ({row['gflops'] / 1e3:.0f} T)")
        lines.append(f"| {types} | {shape} | " + " | ".join(text) + " |")
    if others:
        lines += ["", "| GEMM | us | ratio | against |", "|---|---|---|---|"]
        lines += [f"| {asked.split(' >=')[0]} | {us} | {ratio} | {beside} |" for asked, us, ratio, beside in others]
    return "\n".join(lines)


def ladder_table(rows):
    """A line for each rung, columns for each types."""
    types = list(dict.fromkeys((r["dtype"], r["shape"]) for r in rows))
    rungs = list(dict.fromkeys((r["rung"], r["program"], r["adds"]) for r in rows))
    head = "".join(f" {t} us | TFLOP/s | of cuBLAS |" for t, _ in types)
    lines = [f"| rung | adds |{head}", "|---|---|" + "---|---|---|" * len(types)]
    for number, name, adds in sorted(rungs):
        cells = ""
        for which in types:
            row = next((r for r in rows if (r["dtype"], r["shape"]) == which and r["rung"] == number), None)
            if row is None:
                cells += " | | |"
            else:
                ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
                cells += f" {row['us']:.1f} | {row['gflops'] / 1e3:.3g} | {ratio} |"
        lines.append(f"| {name} | {adds} |{cells}")
    beside = sorted({f"{r['dtype']} is against {r['beside']} of cuBLAS" for r in rows if r["beside"]})
    return "\n".join(lines + ([""] + [f"{'; '.join(beside)}."] if beside else []))


def steps_table(rows):
    """A line for each rung of one product, with what it gave over the one below."""
    lines = ["| rung | adds | us | TFLOP/s | of cuBLAS | gain |", "|---|---|---|---|---|---|"]
    below = None
    for row in sorted(rows, key=lambda r: r["rung"]):
        gain = "" if below is None else f"{below['us'] / row['us']:.2f}"
        lines.append(
            f"| {row['program']} | {row['adds']} | {row['us']:.1f} | {row['gflops'] / 1e3:.3g} | {row['ratio']:.3f} | {gain} |"
        )
        below = row
    return "\n".join(lines)


def ladder_picture(rows):
    """Groups of bars, TFLOP/s on a logarithmic scale, a group a rung."""
    import math

    types = list(dict.fromkeys(r["dtype"] for r in rows))
    rungs = sorted(dict.fromkeys((r["rung"], r["program"]) for r in rows))
    wide, high, left, floor = 900, 440, 60, 380
    speeds = [r["gflops"] / 1e3 for r in rows]
    low, top = math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds)))
    at = lambda speed: floor - (math.log10(speed) - low) / max(top - low, 1) * (floor - 40)
    device = rows[0]["device"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="13">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
        f'<text x="{wide / 2}" y="22" font-size="18" text-anchor="middle">TFLOP/s at {size(rows[0]["shape"])} {rows[0]["layout"]} on {device}</text>',
    ]
    for power in range(low, top + 1):
        y = at(10.0**power)
        out.append(f'<line x1="{left}" x2="{wide - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    group = (wide - left - 20) / len(rungs)
    bar = group * 0.84 / len(types)
    for g, (number, name) in enumerate(rungs):
        x = left + g * group
        out.append(f'<text x="{x + group / 2:.1f}" y="{floor + 18}" text-anchor="middle">{name}</text>')
        for t, dtype in enumerate(types):
            for row in (r for r in rows if (r["rung"], r["dtype"]) == (number, dtype)):
                y, bx = at(row["gflops"] / 1e3), x + group * 0.08 + t * bar
                out.append(
                    f'<rect x="{bx:.1f}" y="{y:.1f}" width="{bar * 0.94:.1f}" height="{floor - y:.1f}" fill="{COLOURS[t % 5]}"/>'
                    f'<text x="{bx + bar / 2:.1f}" y="{y - 4:.1f}" font-size="11" text-anchor="middle">{row["gflops"] / 1e3:.3g}</text>'
                )
    for t, dtype in enumerate(types):
        x = left + 10 + t * 190
        out.append(f'<rect x="{x}" y="{high - 24}" width="14" height="12" fill="{COLOURS[t % 5]}"/>')
        out.append(f'<text x="{x + 20}" y="{high - 13}">{dtype.replace(">", "&gt;")}</text>')
    return "\n".join(out + ["</svg>", ""])


def fill(text, name, table):
    """Puts a table between the lines of its name and the next end."""
    begin = f"<!-- {name} -->"
    if begin not in text:
        sys.exit(f"no line {begin}")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    tables = {}
    if (folder / "suite.json").exists():
        tables["tensor suite"] = suite_table(json.loads((folder / "suite.json").read_text()))
    if (folder / "ladder.jsonl").exists():
        rows = [json.loads(line) for line in (folder / "ladder.jsonl").read_text().splitlines() if line.strip()]
        tables["tensor ladder"] = ladder_table(rows)
        (folder / "tensor_ladder.svg").write_text(ladder_picture(rows))
    if (folder / "hopper.json").exists():
        record = json.loads((folder / "hopper.json").read_text())
        record["rows"] = [entry for entry in record["rows"] if entry.get("row")]
        tables["hopper suite"] = suite_table(record)
    if (folder / "hopper_ladder.jsonl").exists():
        lines = (folder / "hopper_ladder.jsonl").read_text().splitlines()
        tables["hopper ladder"] = steps_table([json.loads(line) for line in lines if line.strip()])
    if not tables:
        sys.exit(f"no suite.json, hopper.json, ladder.jsonl or hopper_ladder.jsonl in {folder}")
    if len(sys.argv) == 2:
        print("\n\n".join(tables.values()))
        return
    readme = pathlib.Path(sys.argv[2])
    text = readme.read_text()
    for name, table in tables.items():
        text = fill(text, name, table)
    readme.write_text(text)


if __name__ == "__main__":
    main()
