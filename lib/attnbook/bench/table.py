"""One table of a record, to be read in a terminal.

Chapter: chapters/11_flash_attention
Source: none
Axes: none
"""

COLUMNS = (
    "ours", "sdpa_cudnn", "sdpa_flash", "sdpa_efficient", "sdpa_math", "flex",
    "standard",
)  # fmt: skip


def table(record: dict) -> str:
    """Return the speeds in TFLOP/s, and ours over the best of PyTorch."""
    if record["wrong"]:
        told = "\n".join(f"  {k}: {v}" for k, v in record["wrong"].items())
        return f"not measured, for ours is wrong:\n{told}"
    lines = [
        f"{record['device']}, {record['versions']}",
        ", ".join(f"{k} {v:.3g}" for k, v in record["ceilings"].items()),
        f"TFLOP/s{'':32}" + "".join(f"{c:>15}" for c in COLUMNS) + "   ratio",
    ]
    for row in record["rows"]:
        lines.append(line(row))
    return "\n".join(lines)


def line(row: dict) -> str:
    """Return a row: where it stands, speeds, ours over PyTorch's best."""
    kind = f"{row['case']}{', causal' if row['causal'] else ''}"
    title = f"{row['pass']} {row['dtype']:9}{row['D']:4} {row['N']:6} {kind}"
    speeds = row["tflops"]
    shown = "".join(
        f"{'-' if speeds[c] is None else format(speeds[c], '.4g'):>15}"
        for c in COLUMNS
    )
    others = [v for k, v in speeds.items() if k.startswith("sdpa") and v]
    ratio = ""
    if speeds["ours"] and others:
        ratio = f"{speeds['ours'] / max(others):8.2f}"
    return f"{title:39}{shown}{ratio}"
