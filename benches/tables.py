"""Turns records of `warploom bench` into tables and pictures.

    python3 benches/tables.py benches/results/FOLDER [benches/results/README.md]
    python3 benches/tables.py --index benches/results/README.md

FOLDER holds records: tensor.json, hopper.json and f32.json (`bench --suite benches/SUITE.suite --out FOLDER/SUITE`), rows.json (benches/beside_torch.py), ladder.jsonl
(`bench --ladder --gemm 4096 --dtype f16,s8,s4 --layout NT --json`), hopper_ladder.jsonl (`bench --ladder --gemm 4096 --dtype f16
--json`); any may be missing. A table goes between the lines `<!-- NAME -->` and `<!-- end -->` of the page, where it has them, or
to standard output without a page. The pictures become FOLDER/tensor_ladder.svg and FOLDER/hopper.svg. With --index the table of
records is written anew.
"""

import json
import pathlib
import re
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


def suite_picture(record):
    """A column for each size, a dot for each types and layout: the ratio of speed to the library's own choice."""
    rows = [entry["row"] for entry in record["rows"] if entry["row"]["ratio"] is not None and not entry["row"]["beside"]]
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    types = list(dict.fromkeys(r["dtype"] for r in rows))
    wide, left, top, floor, right = 1000, 60, 56, 330, 16
    low, most = 0.9, 1.6
    at = lambda ratio: floor - (min(ratio, most) - low) / (most - low) * (floor - top)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} 440" width="{wide}" height="440" font-family="sans-serif" font-size="12">',
        "<title>Speed of recommended schedules beside cuBLASLt</title>",
        f'<rect width="{wide}" height="440" fill="white"/>',
        f'<text x="{wide / 2}" y="22" font-size="16" text-anchor="middle">Speed of `recommend` beside cuBLASLt (1 = as fast), {rows[0]["device"]}</text>',
    ]
    for tenth in range(9, 17):
        y = at(tenth / 10)
        colour = "#444" if tenth == 10 else "#ddd"
        out.append(f'<line x1="{left}" x2="{wide - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    column = (wide - left - right) / len(shapes)
    for n, shape in enumerate(shapes):
        x = left + (n + 0.5) * column
        out.append(f'<text x="{x:.1f}" y="{floor + 12}" text-anchor="end" transform="rotate(-40 {x:.1f} {floor + 12})">{size(shape)}</text>')
        own = [r for r in rows if r["shape"] == shape]
        beyond = [r["ratio"] for r in own if r["ratio"] > most]
        if beyond:
            words = f"{min(beyond):.1f} to {max(beyond):.1f}"
            out.append(f'<text x="{x:.1f}" y="{at(most) + 18:.1f}" text-anchor="middle">{words}</text>')
        for k, row in enumerate(own):
            dx = (k - (len(own) - 1) / 2) * min(5.5, column * 0.9 / len(own))
            colour = COLOURS[types.index(row["dtype"]) % 5]
            out.append(f'<circle cx="{x + dx:.1f}" cy="{at(row["ratio"]):.1f}" r="3" fill="{colour}"/>')
    for n, dtype in enumerate(types):
        x = left + 10 + n * 170
        out.append(f'<circle cx="{x}" cy="{36}" r="4" fill="{COLOURS[n % 5]}"/>')
        out.append(f'<text x="{x + 10}" y="40">{dtype.replace(">", "&gt;")}</text>')
    out.append(f'<text x="{wide - right}" y="40" text-anchor="end" fill="#555">each dot is a layout (NN, NT, TN, TT)</text>')
    return "\n".join(out + ["</svg>", ""])


def rows_table(record):
    """A line for each shape: of each kernel over rows the microseconds, and its speed as a share of a copy's, ours and PyTorch's."""
    kinds = ["softmax", "layernorm", "rmsnorm"]
    shapes = {}
    for row in record["rows"]:
        shapes.setdefault(row["shape"], {})[row["program"]] = row
    head = "".join(f" {kind} us | of a copy | PyTorch |" for kind in kinds)
    lines = [f"| rows | copy us |{head}", "|---|---|" + "---|---|---|" * len(kinds)]
    numbers = lambda shape: [-int(n) for n in shape.split("x")][::-1]
    for shape in sorted(shapes, key=numbers):
        cells = [shapes[shape].get(kind) for kind in kinds]
        if all(cells):
            text = "".join(f" {c['us']:.2f} | {c['of_copy']:.2f} | {c['torch_of_copy']:.2f} |" for c in cells)
            lines.append(f"| {shape} | {cells[0]['copy_us']:.2f} |{text}")
    others = [r for r in record["rows"] if r["program"] not in kinds + ["copy"]]
    if others:
        lines += ["", "| kernel | us | of a copy | PyTorch us |", "|---|---|---|---|"]
        lines += [f"| {r['program']} {r['shape']} | {r['us']:.2f} | {r['of_copy']:.2f} | {r['torch_us']:.2f} |" for r in others]
    return "\n".join(lines)


def fill(text, name, table):
    """Puts a table between the lines of its name and the next end."""
    begin = f"<!-- {name} -->"
    if begin not in text:
        sys.exit(f"no line {begin}")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"


def index(folder):
    """A line for each record of its own and each folder: its name, and the first sentence that it says of itself."""
    lines = ["| record | what it is |", "|---|---|"]
    folders = [page.parent for page in folder.rglob("README.md") if page.parent != folder]
    for path in sorted(folders + list(folder.glob("*.txt"))):
        text = (path / "README.md" if path.is_dir() else path).read_text()
        first = re.split(r"(?<!\.)\. ", " ".join(text.split("\n- ")[0].split()))[0].rstrip(".:").lstrip("# ")
        name = path.relative_to(folder)
        lines.append(f"| [{name}]({name}) | {first.replace('|', '/')} |")
    return "\n".join(lines)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--index":
        page = pathlib.Path(sys.argv[2])
        page.write_text(fill(page.read_text(), "index", index(page.parent)))
        return
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    tables = {}
    for suite in ("tensor", "hopper", "f32"):
        if (folder / f"{suite}.json").exists():
            record = json.loads((folder / f"{suite}.json").read_text())
            record["rows"] = [entry for entry in record["rows"] if entry.get("row")]
            tables[f"{suite} suite"] = suite_table(record)
            if suite == "hopper":
                (folder / "hopper.svg").write_text(suite_picture(record))
    if (folder / "rows.json").exists():
        tables["rows"] = rows_table(json.loads((folder / "rows.json").read_text()))
    if (folder / "ladder.jsonl").exists():
        rows = [json.loads(line) for line in (folder / "ladder.jsonl").read_text().splitlines() if line.strip()]
        tables["tensor ladder"] = ladder_table(rows)
        (folder / "tensor_ladder.svg").write_text(ladder_picture(rows))
    if (folder / "hopper_ladder.jsonl").exists():
        lines = (folder / "hopper_ladder.jsonl").read_text().splitlines()
        tables["hopper ladder"] = steps_table([json.loads(line) for line in lines if line.strip()])
    if not tables:
        sys.exit(f"no tensor.json, hopper.json, f32.json, rows.json, ladder.jsonl or hopper_ladder.jsonl in {folder}")
    if len(sys.argv) == 2:
        print("\n\n".join(tables.values()))
        return
    readme = pathlib.Path(sys.argv[2])
    text = readme.read_text()
    for name, table in tables.items():
        if f"<!-- {name} -->" in text:
            text = fill(text, name, table)
    readme.write_text(text)


if __name__ == "__main__":
    main()
