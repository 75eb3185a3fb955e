"""The table of recorded runs, and the chapter that reads each."""

from pathlib import Path

from attnbook.records import list_records, read_record

MEASURES = {
    "sequence_error": "{:.1%} of sequences wrong",
    "symbol_error": "{:.1%} of symbols wrong",
    "bleu": "BLEU {:.1f}",
    "alignment_error": "alignment error {:.3f}",
}
# Records that a chapter reads through a module of their own.
LOADERS = {
    "language_model": "load_character_model",
    "minilm_maps": "recorded_maps import load_maps",
    "picture_and_sound": "recorded_maps import load_examples",
    "smollm2_head_explorer": "recorded_maps import load_head_maps",
}


def write_run_table(root: Path) -> str:
    """Return what was run, how long it took, what came out, and on what."""
    chapters = {
        path.stem: path.read_text("utf8")
        for path in sorted(root.glob("chapters/[0-9][0-9]_*.md"))
    }
    records = {name: read_record(name) for name in list_records()}
    rows = [
        "| run | what came out | parameters | epochs | CPU minutes | date |",
        "|---|---|---|---|---|---|",
        *(write_run(name, record, chapters) for name, record in records.items()),
    ]
    total = sum(record["cpu_s"] for record in records.values()) / 60
    machines = sorted(
        f"{device}, Python {python}, PyTorch {torch}"
        for device, python, torch in {
            (x["device"], x["versions"]["python"], x["versions"]["torch"])
            for x in records.values()
        }
    )
    return (
        "\n".join(rows) + f"\n\nTogether {total:.0f} CPU minutes. "
        f"Recorded with: {'; '.join(machines)}.\n"
    )


def write_run(name: str, record: dict, chapters: dict[str, str]) -> str:
    results = ", ".join(
        form.format(record["results"][key])
        for key, form in MEASURES.items()
        if key in record["results"]
    )
    size = record.get("parameters")
    cells = (
        f"`{name}`",
        results or link_reader(name, chapters),
        f"{size:,}" if size else "",
        str(record.get("epochs", "")),
        f"{record['cpu_s'] / 60:.1f}",
        record["date"][:10],
    )
    return f"| {' | '.join(cells)} |"


def link_reader(name: str, chapters: dict[str, str]) -> str:
    """Return a link to the chapter that first reads a record, if one does."""
    loader = LOADERS.get(name, f'"{name}"')
    for slug, text in chapters.items():
        if loader in text or f'"{name}"' in text:
            return f"see [chapter {int(slug[:2])}]({slug}.ipynb)"
    return ""
