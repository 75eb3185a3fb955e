"""Notebooks: execute a chapter's text and store what came out.

`python -m workshop.book.notebook NAME` reads chapters/NAME.md, runs it from a
clean kernel with one thread, and writes chapters/NAME.ipynb. Executing again
changes nothing but the outputs of cells tagged `measured-here`.
"""

import argparse
import os
import re
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from tqdm.auto import tqdm

from workshop.book import repository
from workshop.book.cell_kinds import FOLDED, KINDS, TITLE, find_kind

CHAPTERS = Path("chapters")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT = ("tags", "mystnb")
PROGRESS = re.compile(r"\r|\d+%\|")
# How Colab is asked for a GPU, by chapters whose front matter says `gpu: true`.
COLAB = {"accelerator": "GPU", "colab": {"gpuType": "T4", "provenance": []}}


def normalize(
    notebook: nbformat.NotebookNode, gpu: bool = False
) -> nbformat.NotebookNode:
    """Take out what differs between two executions of the same notebook.

    Views of live widgets, progress bars and the kernel's version are removed, and
    all metadata but tags is derived.
    """
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": KERNEL,
            "language_info": {"name": "python"},
            **(COLAB if gpu else {}),
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in KEPT}
            | (FOLDED if find_kind(read_tags(cell)) == "plumbing" else {})
        )
        if cell.cell_type == "code":
            cell.outputs = join_streams(filter(None, map(clean_output, cell.outputs)))
    return notebook


def join_streams(outputs) -> list:
    kept: list = []
    for output in outputs:
        last = kept[-1] if kept else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            kept.append(output)
    return kept


def clean_output(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Return an output as it is stored, or None if it is not."""
    if output.output_type == "stream":
        return None if PROGRESS.search(output.text) else output
    data = output.get("data", {})
    data.pop("application/vnd.jupyter.widget-view+json", None)
    if set(data) == {"text/plain"} and "it/s" in data["text/plain"]:
        return None
    return output if data or output.output_type == "error" else None


def write_if_changed(path: Path, text: str) -> None:
    """Write a text to a file, unless that is already the file's content.

    Sphinx reads a file again if it was written after the last build.
    """
    if not path.exists() or path.read_text("utf8") != text:
        path.write_text(text, "utf8")


def fill_cells(source: Path) -> None:
    """Fill a chapter's setup cell and solutions from the tested source."""
    from workshop.book.solutions import refresh_solutions

    text = repository.set_chapter(source.read_text("utf8"), repository.read_address())
    write_if_changed(source, refresh_solutions(text))


def execute(source: Path) -> nbformat.NotebookNode:
    # One thread: sums are then made in the same order everywhere.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    notebook = jupytext.read(source)
    gpu = needs_gpu(notebook)
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    with tqdm(total=cells, unit="cell", desc=source.stem, disable=None) as bar:
        NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(source.parent)}},
            on_cell_executed=lambda **about: bar.update(),
        ).execute()
    return normalize(notebook, gpu)


def copy_prose(source: Path) -> str:
    """Carry a chapter's prose into its notebook; the stored outputs stay.

    So do the titles of its cells and how they are folded. Where other code has
    changed, nothing is written: it must be executed.
    """
    target = source.with_suffix(".ipynb")
    if not target.exists():
        return f"not executed yet: make notebook NAME={source.stem}"
    text, stored = jupytext.read(source), nbformat.read(target, as_version=4)
    code = [
        [drop_folding(c) for c in book.cells if c.cell_type == "code"]
        for book in (text, stored)
    ]
    if code[0] != code[1]:
        return f"code has changed: make notebook NAME={source.stem}"
    outputs = [c for c in stored.cells if c.cell_type == "code"]
    for cell in text.cells:
        if cell.cell_type == "code":
            last = outputs.pop(0)
            cell.outputs, cell.execution_count = (last.outputs, last.execution_count)
    stored.cells = text.cells
    made = nbformat.writes(normalize(stored, needs_gpu(text)))
    write_if_changed(target, made + "\n")
    return "prose carried into the notebook"


def drop_folding(cell: nbformat.NotebookNode) -> tuple[str, list[str]]:
    """Return a cell's source and tags without what only folds it."""
    kept = [tag for tag in read_tags(cell) if tag not in KINDS]
    return TITLE.sub("", cell.source, count=1), kept


def needs_gpu(text: nbformat.NotebookNode) -> bool:
    return bool(text.metadata.get("chapter", {}).get("gpu", False))


def read_tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workshop.book.notebook")
    parser.add_argument("name", nargs="+", help="such as 01_bottleneck")
    for name in parser.parse_args(words).name:
        source = CHAPTERS / f"{Path(name).stem}.md"
        if not source.exists():
            known = sorted(p.stem for p in CHAPTERS.glob("[0-9]*.md"))
            parser.error(f"there is no chapter {source.stem}; there are {known}")
        fill_cells(source)
        target = source.with_suffix(".ipynb")
        nbformat.write(execute(source), target)
        print(f"{target}: {target.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
