"""One table of a record, to be read in a terminal."""

COLUMNS = (
    "ours", "sdpa_cudnn", "sdpa_flash", "sdpa_efficient", "sdpa_math", "flex",
    "standard",
)  # fmt: skip


def format_table(record: dict) -> str:
    """Return the speeds in TFLOP/s; ours over PyTorch's best and over Flex."""
    lines = [
        f"{record['device']}, driver {record.get('driver')}, "
        f"{record['versions']}, code {record.get('code')}",
        ", ".join(
            f"{k} {'-' if v is None else format(v, '.3g')}"
            for k, v in record["ceilings"].items()
        ),
        f"TFLOP/s{'':32}" + "".join(f"{c:>15}" for c in COLUMNS) + "    /sdpa    /flex",
        *map(format_row, record["rows"]),
    ]
    lines += [
        f"not measured, because ours is wrong: {k}: {v}"
        for k, v in record["wrong"].items()
    ]
    lines += [
        f"failed: {row['key']}: {row['failed']}"
        for row in record["rows"]
        if "failed" in row
    ]
    return "\n".join(lines)


def format_row(row: dict) -> str:
    """Return a row: what was measured, speeds, ours over the others."""
    kind = f"{row['case']}{', causal' if row['causal'] else ''}"
    title = f"{row['pass']} {row['dtype']:9}{row['D']:4} {row['N']:6} {kind}"
    speeds = row["tflops"]
    shown = "".join(
        f"{'-' if speeds[c] is None else format(speeds[c], '.4g'):>15}" for c in COLUMNS
    )
    backends = [v for k, v in speeds.items() if k.startswith("sdpa") and v]
    ratios = (
        f"{speeds['ours'] / other:9.2f}" if speeds["ours"] and other else "        -"
        for other in (max(backends, default=None), speeds["flex"])
    )
    return f"{title:39}{shown}{''.join(ratios)}"
