"""Pages made from the library: written by `make pages`, held fresh by a test.

Whole pages, and in the chapters the folded solutions.

Chapter: chapters/00_before_you_start
Source: none
Axes: none
"""

from pathlib import Path

from attnbook.book.cheat_sheet import cheat_sheet
from attnbook.book.misconceptions import misconceptions
from attnbook.book.notebook import fold, follow
from attnbook.book.teaching import teaching
from attnbook.evidence import names, read_record

CHAPTERS = Path("chapters")
MEASURES = {
    "sequence_error": "{:.1%} of sequences wrong",
    "symbol_error": "{:.1%} of symbols wrong",
    "bleu": "BLEU {:.1f}",
    "alignment_error": "alignment error {:.3f}",
    "alignment_error_shifted": "{:.3f} after the best shift",
}
HEAD = """# Evidence

Every run that took too long for a cell, as it was recorded. The chapters read
these files and print which one they read; `make evidence NAME=...` repeats a
run, going on from its last finished epoch if it was interrupted. An error is
that of the rounded weights on the test set; minutes are of processor time, on
one thread.

"""


def evidence() -> str:
    """Return the page of recorded runs: what, how long, what came out."""
    rows = [
        "| run | what came out | parameters | epochs | CPU minutes | date |",
        "|---|---|---|---|---|---|",
    ]
    total = 0.0
    for name in names():
        record = read_record(name)
        total += record["cpu_s"] / 60
        said = ", ".join(
            form.format(record["results"][key])
            for key, form in MEASURES.items()
            if key in record["results"]
        )
        size = record.get("parameters")
        cells = (
            f"`{name}`",
            said or f"see {reader(name)}",
            f"{size:,}" if size else "",
            str(record.get("epochs", "")),
            f"{record['cpu_s'] / 60:.1f}",
            record["date"][:10],
        )
        rows.append(f"| {' | '.join(cells)} |")
    foot = f"\nTogether {total:.0f} CPU minutes. {machines()}\n"
    return HEAD + "\n".join(rows) + "\n" + foot


def reader(name: str) -> str:
    """Return a link to the chapter that first reads a record.

    Raises:
        ValueError: if no chapter does.
    """
    module = name.partition("_")[0]
    for path in sorted(CHAPTERS.glob("[0-9][0-9]_*.md")):
        text = path.read_text("utf8")
        if f'"{name}"' in text or f"attnbook.evidence.{module} " in text:
            return f"[chapter {int(path.name[:2])}]({path.stem}.ipynb)"
    raise ValueError(f"no chapter reads the record {name!r}")


def machines() -> str:
    """Return a sentence on the machines and versions of all runs."""
    found = sorted(
        {
            f"{r['device']}, Python {r['versions']['python']}, "
            f"PyTorch {r['versions']['torch']}"
            for r in map(read_record, names())
        }
    )
    return f"Recorded with: {'; '.join(found)}." if found else ""


PAGES = {
    "cheat_sheet.md": cheat_sheet,
    "evidence.md": evidence,
    "misconceptions.md": misconceptions,
    "teaching.md": teaching,
}


def main() -> None:
    """Write every page, and the folded solutions of every chapter."""
    for name, make in PAGES.items():
        (CHAPTERS / name).write_text(make(), "utf8")
        print(f"wrote {CHAPTERS / name}")
    for path in sorted(CHAPTERS.glob("[0-9][0-9]_*.md")):
        fold(path)
        print(f"{path}: {follow(path)}")


if __name__ == "__main__":
    main()
