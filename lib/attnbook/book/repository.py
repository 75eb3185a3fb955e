"""The repository's address: set in one place, and everything else follows.

`python -m attnbook.book.repository URL` writes the address into `_config.yml`
(Colab and edit buttons), the badges of the README and the setup cells of the
chapters; with an empty URL it takes them out again. Each piece stands between
two marks, so that setting it twice is the same as setting it once.

Chapter: chapters/00_before_you_start
Source: none
Axes: none
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


def refuse(url: str) -> None:
    """Raise ValueError unless url is empty or like https://host/owner/name."""
    if url and not ADDRESS.fullmatch(url):
        raise ValueError(
            f"{url!r} is not an address like https://github.com/owner/name"
        )


def marked(body: str, left: str = "#", right: str = "") -> str:
    """Return a block between its marks; nothing for an empty body."""
    if not body:
        return ""
    tail = f" {right}" if right else ""
    return f"{left} {OPEN}{tail}\n{body.rstrip()}\n{left} {CLOSE}{tail}\n"


def config(url: str) -> str:
    """Return the keys that make the Colab and edit buttons appear."""
    if not url:
        return ""
    place = f"repository:\n  url: {url}\n  branch: {BRANCH}\n"
    if not url.startswith(GITHUB):
        return place
    colab_url = "https://colab.research.google.com"
    return f"{place}launch_buttons:\n  colab_url: {colab_url}\n"


def setup_lines(url: str) -> str:
    """Return the lines that fetch the package on Colab."""
    if not url:
        return ""
    return (
        "import sys\n\n"
        'if "google.colab" in sys.modules:\n'
        f'    %pip install -q "attnbook @ git+{url}@{BRANCH}"\n'
    )


def colab(url: str, chapter: str) -> str:
    """Return the address at which Colab opens a chapter."""
    path = url.removeprefix(GITHUB)
    host = "https://colab.research.google.com/github"
    return f"{host}/{path}/blob/{BRANCH}/chapters/{chapter}.ipynb"


def badges(url: str, chapters: list[str]) -> str:
    """Return a line of Markdown a chapter, each opening it on Colab."""
    if not url.startswith(GITHUB):
        return ""
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return "\n".join(
        f"- [![Open {name} on Colab]({image})]({colab(url, name)}) {name}"
        for name in chapters
    )


def set_config(text: str, url: str) -> str:
    """Return `_config.yml` for this address."""
    text = BLOCK.sub("", text)
    for key in ("use_repository_button", "use_edit_page_button"):
        text = re.sub(
            rf"(?m)^(  {key}:).*$", rf"\1 {str(bool(url)).lower()}", text
        )
    return text.rstrip("\n") + "\n" + marked(config(url))


def set_cell(source: str, url: str) -> str:
    """Return a setup cell for this address."""
    return marked(setup_lines(url)) + BLOCK.sub("", source + "\n").rstrip("\n")


def set_text(text: str, url: str) -> str:
    """Return a chapter's text for this address."""
    cell = re.compile(
        r"(?ms)^(```\{code-cell\}[^\n]*\n:tags: \[setup\]\n\n)(.*?)\n```$"
    )
    return cell.sub(
        lambda m: f"{m.group(1)}{set_cell(m.group(2), url)}\n```", text
    )


def set_readme(text: str, url: str, chapters: list[str]) -> str:
    """Return the README for this address; its heading keeps the place."""
    text = BLOCK.sub("", text)
    block = marked(badges(url, chapters), "<!--", "-->")
    place = "<!-- badges -->\n"
    return text.replace(place, place + block)


def apply(root: Path, url: str) -> None:
    """Set the address of the book in `root`; an empty one takes it out.

    Raises:
        ValueError: if the address is not like https://host/owner/name.
    """
    url = url.rstrip("/").removesuffix(".git")
    refuse(url)
    texts = sorted((root / "chapters").glob("[0-9][0-9]_*.md"))
    for path, changed in (
        (root / "_config.yml", lambda t: set_config(t, url)),
        *((p, lambda t: set_text(t, url)) for p in texts),
        (
            root / "README.md",
            lambda t: set_readme(t, url, [p.stem for p in texts]),
        ),
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
        apply(Path(), sys.argv[1] if len(sys.argv) > 1 else "")
    except ValueError as error:
        sys.exit(str(error))
