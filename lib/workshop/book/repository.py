"""The repository's address: set in one place, and everything else follows.

`python -m workshop.book.repository URL` writes the address into `_config.yml`
(Colab and edit buttons), the badges of the README and the setup cells of the
chapters; with an empty URL it takes them out again. Each piece stands between
two marks, so that setting it twice is the same as setting it once.

A setup cell is the first code cell of a chapter. It begins with a check that
`attnbook` is installed, because a notebook is often downloaded from a page and
opened alone: on Colab the check installs the package from the repository, and
elsewhere it stops with one sentence that says what to install.
"""

import re
import sys
from pathlib import Path

import nbformat

ADDRESS = re.compile(r"https://[\w.-]+/[\w.-]+/[\w.-]+")
BRANCH = "main"
# Colab opens notebooks from here alone.
GITHUB = "https://github.com/"
OPEN, CLOSE = "repository:begin", "repository:end"
BLOCK = re.compile(rf"(?ms)^[^\n]*{OPEN}[^\n]*\n.*?^[^\n]*{CLOSE}[^\n]*\n")
# Colab shows a folded cell under this title.
TITLE = "# @title Setup: run this cell first\n"


def read_address(root: Path = Path()) -> str:
    """Return the address that `_config.yml` holds, empty if it has none."""
    block = BLOCK.search((root / "_config.yml").read_text("utf8"))
    found = block and re.search(r"(?m)^  url: (.+)$", block[0])
    return found[1] if found else ""


def add_marks(body: str, left: str = "#", right: str = "") -> str:
    """Return a block between its marks; nothing for an empty body."""
    if not body:
        return ""
    tail = f" {right}" if right else ""
    return f"{left} {OPEN}{tail}\n{body.rstrip()}\n{left} {CLOSE}{tail}\n"


def write_config(url: str) -> str:
    if not url:
        return ""
    place = f"repository:\n  url: {url}\n  branch: {BRANCH}\n"
    if not url.startswith(GITHUB):
        return place
    colab_url = "https://colab.research.google.com"
    return f"{place}launch_buttons:\n  colab_url: {colab_url}\n"


def write_setup_lines(url: str) -> str:
    """Return the check that attnbook is there, first of all in a notebook.

    With an address, Colab installs the package and other editors are told the
    command; without one, nobody can say more than which folder to install.
    """
    source = f"attnbook @ git+{url}@{BRANCH}"
    if url:
        how = f"""'Install it with: pip install "{source}" '"""
    else:
        how = (
            '"Download or clone the repository that this notebook comes from, "'
            """\n        'and run "pip install ." in its folder. '"""
        )
    stop = f"""
    raise SystemExit(
        "This notebook needs the package attnbook, which is part of its book. "
        {how}
        "Then restart the kernel and run this cell again."
    )
"""
    if not url:
        return f"""import importlib.util

if importlib.util.find_spec("attnbook") is None:{stop}"""
    return f"""import importlib.util
import sys

missing = importlib.util.find_spec("attnbook") is None
if missing and "google.colab" in sys.modules:
    %pip install -q "{source}"
elif missing:{stop}"""


def make_colab_address(url: str, chapter: str) -> str:
    path = url.removeprefix(GITHUB)
    host = "https://colab.research.google.com/github"
    return f"{host}/{path}/blob/{BRANCH}/chapters/{chapter}.ipynb"


def write_badges(url: str, chapters: list[str]) -> str:
    if not url.startswith(GITHUB):
        return ""
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return "\n".join(
        f"- [![Open {name} on Colab]({image})]({address}) {name}"
        for name in chapters
        for address in [make_colab_address(url, name)]
    )


def set_config(text: str, url: str) -> str:
    text = BLOCK.sub("", text)
    for key in ("use_repository_button", "use_edit_page_button"):
        text = re.sub(rf"(?m)^(  {key}:).*$", rf"\1 {str(bool(url)).lower()}", text)
    return text.rstrip("\n") + "\n" + add_marks(write_config(url))


def set_cell(source: str, url: str) -> str:
    rest = BLOCK.sub("", source + "\n").removeprefix(TITLE).rstrip("\n")
    return TITLE + add_marks(write_setup_lines(url)) + rest


def set_chapter(text: str, url: str) -> str:
    cell = re.compile(
        r"(?ms)^(```\{code-cell\}[^\n]*\n:tags: \[setup, hide-input\]\n\n)"
        r"(.*?)\n```$"
    )
    return cell.sub(lambda m: f"{m.group(1)}{set_cell(m.group(2), url)}\n```", text)


def set_readme(text: str, url: str, chapters: list[str]) -> str:
    """Return the README for this address; its heading keeps the place."""
    text = BLOCK.sub("", text)
    block = add_marks(write_badges(url, chapters), "<!--", "-->")
    place = "<!-- badges -->\n"
    return text.replace(place, place + block)


def set_address(root: Path, url: str) -> None:
    """Set the address of the book in `root`; an empty one takes it out.

    Raises:
        ValueError: if it is not like https://host/owner/name.
    """
    url = url.rstrip("/").removesuffix(".git")
    if url and not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url!r} is not an address like https://github.com/owner/name"
        )
    texts = sorted((root / "chapters").glob("[0-9][0-9]_*.md"))
    for path, changed in (
        (root / "_config.yml", lambda t: set_config(t, url)),
        *((p, lambda t: set_chapter(t, url)) for p in texts),
        (root / "README.md", lambda t: set_readme(t, url, [p.stem for p in texts])),
    ):
        path.write_text(changed(path.read_text("utf8")), "utf8")
    for path in texts:
        set_notebook(path.with_suffix(".ipynb"), url)


def set_notebook(path: Path, url: str) -> None:
    """Set the address in a stored notebook; its outputs stay."""
    if not path.exists():
        return
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "setup" in cell.metadata.get("tags", []):
            cell.source = set_cell(cell.source, url)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    try:
        set_address(Path(), sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        sys.exit(str(error))
