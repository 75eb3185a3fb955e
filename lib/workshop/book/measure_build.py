"""What building takes: a plain book, ours, and ours with more chapters."""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

PAGE = """# A page

A formula, $e^{i\\pi} + 1 = 0$, and a figure.

![a picture](picture.png)
"""


def build_book(folder: Path) -> float:
    """Build the book in a folder; return the seconds that took."""
    began = time.perf_counter()
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began


def find_figure(source: Path) -> bytes:
    """Return a figure that a chapter of this book has stored."""
    for path in sorted(source.glob("chapters/0[1-9]_*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            for output in cell.get("outputs", []):
                if found := output.get("data", {}).get("image/png"):
                    return base64.b64decode("".join(found))
    raise ValueError(f"no chapter under {source.resolve()} stores a figure")


def build_plain_book(source: Path) -> Path:
    """Return a built book of one page, one formula and one figure.

    The figure is one of this book's. Nothing is configured but the title.
    """
    folder = Path(tempfile.mkdtemp())
    (folder / "_config.yml").write_text("title: A plain book\n")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (folder / "index.md").write_text(PAGE)
    (folder / "picture.png").write_bytes(find_figure(source))
    build_book(folder)
    return folder / "_build/html"


def repeat_chapters(source: Path, target: Path, times: int) -> int:
    """Copy the book with its chapters so many times; return how many."""
    ignored = shutil.ignore_patterns(".*", "_build", "tests", "__pycache__")
    shutil.copytree(source, target, ignore=ignored)
    path = target / "_toc.yml"
    contents = yaml.safe_load(path.read_text("utf8"))
    first = contents["parts"][0]["chapters"]
    found = list(first)
    for again in range(1, times):
        for entry in found:
            name = entry["file"]
            copy = f"{name}_again_{again}"
            notebook = (target / f"{name}.ipynb").read_text("utf8")
            (target / f"{copy}.ipynb").write_text(notebook, "utf8")
            first.append({"file": copy})
    path.write_text(yaml.safe_dump(contents), "utf8")
    return len(first)


def measure_by_chapters(source: Path) -> Iterator[str]:
    """Build the book with its chapters 1, 2, 4 and 8 times; tell each."""
    for times in (1, 2, 4, 8):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "book"
            count = repeat_chapters(source, target, times)
            yield f"{count} {build_book(target):.1f}"
