"""Check: after an edit, the stages of `make test` for what has changed.

`make check` compares with the last commit, `make check SINCE=main` with another.
A changed module is tested by the folder of tests that mirrors its package and by
every test that names it.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import jupytext
import nbformat

# Where a change makes the pages look different.
PAGES = re.compile(
    r"_config\.yml|_toc\.yml|chapters/|lib/workshop/book/|lib/.*\.(css|js)"
)
CHAPTER = re.compile(r"chapters/(\d\d_\w+)\.(md|ipynb)")


def run_git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    return [x for x in done.stdout.split("\0") if x]


def list_changed(since: str) -> list[str]:
    """Return the files that differ from a commit, new and deleted ones too."""
    try:
        run_git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}")
    except subprocess.CalledProcessError:
        raise ValueError(f"SINCE={since} names no commit") from None
    changed = run_git("diff", "--name-only", "-z", "--merge-base", since)
    new = run_git("ls-files", "-z", "--others", "--exclude-standard")
    return sorted({*changed, *new})


def list_tests(changed: Iterable[str]) -> list[str]:
    """Return the folders and files of tests that changed files belong to."""
    texts = {
        path.as_posix(): path.read_text("utf8")
        for path in Path("tests").rglob("test_*.py")
    }
    found: set[str] = set()
    for path in map(Path, changed):
        if path.as_posix() in texts:
            found.add(path.as_posix())
            continue
        if path.suffix == ".py" and path.parts[0] == "lib":
            module = ".".join(path.with_suffix("").parts[1:])
            name = re.escape(module.removesuffix(".__init__"))
            mirror = Path("tests", *path.parts[1:-1])
        elif path.suffix == ".py" and path.parent == Path("tests/helpers"):
            name, mirror = rf"(from|import) {re.escape(path.stem)}", None
        elif path.suffix == ".js":
            name, mirror = re.escape(path.stem), None
        else:
            continue
        named = re.compile(rf"\b{name}\b")
        found |= {
            test
            for test, text in texts.items()
            if test.endswith(f"/test_{path.stem}.py") or named.search(text)
        }
        if mirror and mirror.is_dir():
            found.add(mirror.as_posix())
    # A file is in its folder already.
    return sorted(x for x in found if not {*map(str, Path(x).parents)} & found)


def require_same(chapter: str) -> None:
    """Raise ValueError unless a chapter's notebook has its text's cells."""
    path = Path("chapters", f"{chapter}.ipynb")
    text = jupytext.read(path.with_suffix(".md"))
    stored = nbformat.read(path, as_version=4) if path.exists() else None
    sources = [cell.source for cell in text.cells]
    if stored is None or sources != [cell.source for cell in stored.cells]:
        raise ValueError(
            f"{path} does not match {path.stem}.md: run make notebook NAME={chapter}, "
            "or make pages if only prose has changed"
        )


def main(since: str = "HEAD") -> int:
    """Run what belongs to the changed files; return make's exit code."""
    try:
        changed = list_changed(since)
        chapters = sorted({m[1] for m in map(CHAPTER.fullmatch, changed) if m})
        chapters = [x for x in chapters if Path("chapters", f"{x}.md").exists()]
        for chapter in chapters:
            require_same(chapter)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if not changed:
        print(f"No file differs from {since}.")
        return 0
    tests = list_tests(changed)
    stages = ["lint"]
    stages += ["unit"] if tests else []
    stages += ["notebooks"] if chapters else []
    stages += ["book"] if any(map(PAGES.match, changed)) else []
    names = ", ".join([*tests, *chapters]) or "no tests"
    print(f"{len(changed)} changed files: {', '.join(stages)} ({names})", flush=True)
    notebooks = [f"chapters/{chapter}.ipynb" for chapter in chapters]
    named = {"STAGE": stages, "TESTS": tests, "NOTEBOOKS": notebooks}
    narrowed = [f"{name}={' '.join(values)}" for name, values in named.items()]
    return subprocess.run(["make", "test", *narrowed]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
