"""Pages made from the library: written by `make pages`, held fresh by a test.

Whole pages, and in the chapters the folded solutions.
"""

from pathlib import Path

from attnbook.records import list_records, read_record
from workshop.book import reference
from workshop.book.cheat_sheet import write_cheat_sheet
from workshop.book.front_matter import (
    list_chapters,
    read_chapters,
    write_opening,
    write_table,
)
from workshop.book.glossary import write_glossary
from workshop.book.mistakes import write_mistakes
from workshop.book.notebook import copy_prose, fill_cells, write_if_changed
from workshop.book.teaching import write_teaching_guide
from workshop.chapters import read_table
from workshop.progress import Progress

CHAPTERS = Path("chapters")
README = Path("README.md")
MEASURES = {
    "sequence_error": "{:.1%} of sequences wrong",
    "symbol_error": "{:.1%} of symbols wrong",
    "bleu": "BLEU {:.1f}",
    "alignment_error": "alignment error {:.3f}",
    "alignment_error_shifted": "{:.3f} after the best shift",
    "help_text_loss": "{:.3f} nats a token on help texts",
}
# Records that a chapter reads through a module of their own.
LOADERS = {
    "language_model": "attnbook.training.character_model import",
    "minilm_maps": "attnbook.data.minilm import",
    "picture_and_sound": "attnbook.data.picture_and_sound import",
    "smollm2_head_explorer": "attnbook.data.smollm2_head_maps import",
}
HEAD = """# Evidence

Every run that took too long for a cell, as it was recorded. The chapters read
these files and print which one they read; `make evidence NAME=...` repeats a
run, going on from its last finished epoch if it was interrupted. An error is
that of the rounded weights on the test set; minutes are of processor time, on
one thread.

"""


def write_evidence() -> str:
    """Return the page of recorded runs: what, how long, what came out."""
    rows = [
        "| run | what came out | parameters | epochs | CPU minutes | date |",
        "|---|---|---|---|---|---|",
    ]
    total = 0.0
    for name in list_records():
        record = read_record(name)
        total += record["cpu_s"] / 60
        results = ", ".join(
            form.format(record["results"][key])
            for key, form in MEASURES.items()
            if key in record["results"]
        )
        size = record.get("parameters")
        cells = (
            f"`{name}`",
            results or f"see {link_reader(name)}",
            f"{size:,}" if size else "",
            str(record.get("epochs", "")),
            f"{record['cpu_s'] / 60:.1f}",
            record["date"][:10],
        )
        rows.append(f"| {' | '.join(cells)} |")
    foot = f"\nTogether {total:.0f} CPU minutes. {describe_machines()}\n"
    return HEAD + "\n".join(rows) + "\n" + foot


def link_reader(name: str) -> str:
    """Return a link to the chapter that first reads a record.

    A record that no chapter reads belongs to the first chapter of
    `chapters.toml` that is not written yet, if there is one.

    Raises:
        ValueError: if no chapter reads it, and all of them are written.
    """
    loader = LOADERS.get(name, f'"{name}"')
    for path in sorted(CHAPTERS.glob("[0-9][0-9]_*.md")):
        text = path.read_text("utf8")
        if loader in text or f'"{name}"' in text:
            return f"[chapter {int(path.name[:2])}]({path.stem}.ipynb)"
    written = {path.stem for path in CHAPTERS.glob("*.md")}
    planned = sorted({*read_table().values()} - written - {"everywhere"})
    if planned:
        return f"chapter {int(planned[0][:2])}, which is not written yet"
    raise ValueError(f"no chapter reads the record {name!r}")


def describe_machines() -> str:
    """Return a sentence on the machines and versions of all runs."""
    found = sorted(
        {
            f"{r['device']}, Python {r['versions']['python']}, "
            f"PyTorch {r['versions']['torch']}"
            for r in map(read_record, list_records())
        }
    )
    return f"Recorded with: {'; '.join(found)}." if found else ""


def write_index() -> str:
    """Return the first page with the table of chapters fresh."""
    text = (CHAPTERS / "index.md").read_text("utf8")
    return write_table(text, list_chapters(read_chapters(CHAPTERS), times=True))


def write_readme() -> str:
    """Return the README with the table of chapters fresh."""
    table = list_chapters(read_chapters(CHAPTERS), f"{CHAPTERS}/")
    return write_table(README.read_text("utf8"), table)


PAGES = {
    "cheat_sheet.md": write_cheat_sheet,
    "evidence.md": write_evidence,
    "glossary.md": write_glossary,
    "index.md": write_index,
    "mistakes.md": write_mistakes,
    "teaching.md": write_teaching_guide,
}


def main() -> None:
    """Write every page, and the folded solutions of every chapter."""
    progress = Progress()
    for name, make in PAGES.items():
        progress.overwrite_line(f"writing {CHAPTERS / name}")
        write_if_changed(CHAPTERS / name, make())
        progress.write_line(f"wrote {CHAPTERS / name}")
    progress.overwrite_line("writing the reference pages")
    pages = reference.write_reference_pages()
    progress.clear_line()
    for name, text in pages.items():
        Path(name).parent.mkdir(exist_ok=True)
        write_if_changed(Path(name), text)
        print(f"wrote {name}")
    write_if_changed(README, write_readme())
    print(f"wrote {README}")
    for front in read_chapters(CHAPTERS):
        path = CHAPTERS / f"{front.slug}.md"
        write_if_changed(path, write_opening(path.read_text("utf8"), front))
        fill_cells(path)
        print(f"{path}: {copy_prose(path)}")


if __name__ == "__main__":
    main()
