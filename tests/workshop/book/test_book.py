"""The book keeps its own rules: each rule of the house is a test here."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

from workshop.book import alternative_texts, pages
from workshop.book.cell_kinds import find_kind
from workshop.chapters import find_chapter, read_table, require_chapter

pytestmark = [
    pytest.mark.precision,
    pytest.mark.exact("reads sources and pages, and compares texts"),
]

ROOT = Path(__file__).parents[3]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))
LIBRARY = ROOT / "lib"
MODULES = sorted(
    p
    for p in LIBRARY.rglob("*.py")
    if p.stem not in {"__main__"} and "__pycache__" not in p.parts
)
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
each_module = pytest.mark.parametrize(
    "path", MODULES, ids=lambda p: str(p.relative_to(LIBRARY))
)


def notebook(path):
    return nbformat.read(path, as_version=4)


def cells(path):
    return [(c.cell_type, c.source.rstrip()) for c in jupytext.read(path).cells]


def code_cells(path):
    return [c for c in notebook(path).cells if c.cell_type == "code"]


def docstring(path):
    return ast.get_docstring(ast.parse(path.read_text("utf8"))) or ""


def module_name(path):
    parts = path.relative_to(LIBRARY).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def tags(cell):
    return cell.metadata.get("tags", [])


def is_module(name):
    return (LIBRARY / f"{name.replace('.', '/')}.py").exists()


def python(source):
    return re.sub(r"^(\s*)[%!].*", r"\1pass", source, flags=re.M)


def imports(path):
    for cell in code_cells(path):
        for node in ast.walk(ast.parse(python(cell.source))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"


def test_there_are_chapters():
    assert len(CHAPTERS) >= 3


@each_chapter
def test_notebook_and_its_text_agree(path):
    assert cells(path) == cells(path.with_suffix(".md"))


@each_chapter
def test_every_cell_was_executed_in_order_without_error(path):
    found = [c for c in code_cells(path) if c.source.strip()]
    counts = [c.execution_count for c in found]
    assert counts == list(range(1, len(found) + 1))
    kinds = {o.output_type for c in found for o in c.outputs}
    assert "error" not in kinds


@each_chapter
def test_cells_are_short(path):
    most = {"open": 15, "proof": 31, "plumbing": 31}  # a title is a line more
    long = {
        c.source.splitlines()[0]: len(c.source.splitlines())
        for c in code_cells(path)
        if (kind := find_kind(tags(c))) != "setup"
        and len(c.source.splitlines()) > most[kind]
    }
    assert not long


@each_chapter
def test_every_figure_has_alternative_text(path):
    for cell in code_cells(path):
        for alt in alternative_texts.find_texts(cell):
            assert len(alt) > 40, (alt, cell.source)


@each_chapter
def test_what_is_measured_here_is_not_compared_and_is_asserted(path):
    found = code_cells(path)
    for i, cell in enumerate(found):
        if "measured-here" in tags(cell):
            assert "nbval-ignore-output" in tags(cell), cell.source
            near = cell.source + "".join(c.source for c in found[i + 1 : i + 4])
            assert re.search(r"\bassert\b", near), cell.source


@each_chapter
def test_what_is_compared_prints_few_digits(path):
    for cell in code_cells(path):
        if "nbval-ignore-output" in tags(cell):
            continue
        for output in cell.outputs:
            text = output.get("text", "") or output.get("data", {}).get(
                "text/plain", ""
            )
            assert not re.search(r"\d\.\d{5,}", text), (text, cell.source)


@each_chapter
def test_no_state_of_a_live_widget_is_stored(path):
    assert "widgets" not in notebook(path).metadata
    assert "widget-view" not in path.read_text("utf8")
    assert path.stat().st_size < 900_000


@each_chapter
def test_no_chapter_uses_what_a_later_one_builds(path):
    for name in imports(path):
        assert not name.startswith("workshop"), f"{name} is not installed"
        if name in read_table() or is_module(name):
            built = find_chapter(name)
            assert built == "everywhere" or built <= path.stem, (
                f"{name} is built in {built}"
            )


@each_chapter
def test_a_chapter_has_its_parts(path):
    text = path.with_suffix(".md").read_text("utf8")
    parts = ["Exercises", "What we measured", "Sources"]
    if not path.stem.startswith("00"):
        parts.append("Pitfalls")
    for part in parts:
        assert re.search(rf"^## {part}", text, re.M), part
    assert f'quiz("{path.stem}")' in text
    assert text.count("check_") >= 3


@pytest.mark.parametrize(
    "path", sorted((ROOT / "chapters").glob("*.md")), ids=lambda p: p.stem
)
def test_links_work_in_every_reader(path):
    """GitHub, Jupyter and the pages all follow a link to a file."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf8"))
    for link in re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text):
        target = ROOT / "chapters" / link.partition("#")[0]
        assert target.is_file(), link
        assert not re.fullmatch(r"\d\d_\w+\.md", target.name), link


@pytest.mark.parametrize(
    "path", sorted((ROOT / "chapters").glob("*.md")), ids=lambda p: p.stem
)
def test_no_line_of_a_paragraph_is_a_list_or_a_comment_by_accident(path):
    """MyST reads `1. `, `1) ` and `%` at the start of a line in this way."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text("utf8"))
    begins = re.findall(r"(?m)^(?![-#>|:]| *\d+[.)]).+[^:\n]\n1[.)] .*$", text)
    assert not begins
    assert not re.findall(r"(?m)^.+\n *%.*$", text)


# Their modules are ahead of them; a name goes from here when it comes.
AHEAD: set[str] = set()


def test_an_existing_chapter_is_not_listed_as_planned():
    assert not AHEAD & {path.stem for path in CHAPTERS}


def test_a_record_belongs_to_a_chapter_or_to_one_that_is_planned(monkeypatch):
    assert pages.link_reader("smollm2_map").startswith("[chapter 12]")
    table = {"attnbook.a": "99_last", "attnbook.b": "01_bottleneck"}
    monkeypatch.setattr(pages, "read_table", lambda: table)
    planned = "chapter 99, which is not written yet"
    assert pages.link_reader("no such record") == planned
    del table["attnbook.a"]
    with pytest.raises(ValueError, match="no chapter reads the record 'no"):
        pages.link_reader("no such record")


@each_module
def test_every_module_has_a_docstring(path):
    text = docstring(path)
    assert text, "no docstring"
    # Which chapter builds it stands in chapters.toml, and nowhere else.
    assert not re.search(r"^Chapter: ", text, re.M)
    assert not re.search(r"^(Source|Axes): none", text, re.M)


@pytest.mark.parametrize(
    "name", sorted(x for x in map(module_name, MODULES) if is_module(x))
)
def test_every_module_of_attnbook_is_built_in_a_chapter(name):
    if name.startswith("attnbook."):
        chapter = find_chapter(name)
        there = (ROOT / "chapters" / f"{chapter}.md").exists()
        assert chapter == "everywhere" or there or chapter in AHEAD


@pytest.mark.parametrize("name", read_table())
def test_every_line_of_the_table_names_a_module_or_package(name):
    package = LIBRARY / name.replace(".", "/") / "__init__.py"
    assert is_module(name) or package.exists()


def test_a_module_without_a_line_in_the_table_is_refused():
    with pytest.raises(ValueError, match=r"no line for attnbook\.no\.such"):
        find_chapter("attnbook.no.such")
    assert find_chapter("attnbook.masks.rules") == find_chapter("attnbook.masks")


def test_exercises_without_a_chapter_are_refused():
    module = "attnbook.exercises.new_chapter"
    assert find_chapter(module) == "everywhere"
    with pytest.raises(ValueError, match=rf"names no chapter for {module}"):
        require_chapter(module)


@each_module
def test_modules_are_short(path):
    assert len(path.read_text("utf8").splitlines()) <= 400


def test_importing_the_package_imports_no_torch():
    code = "import attnbook, workshop.book.math, attnbook.records, sys"
    check = "sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], check=True)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*pages.PAGES} - {"mistakes.md"}))
def test_pages_made_from_the_library_are_fresh(name):
    stored = (ROOT / "chapters" / name).read_text("utf8")
    assert stored == pages.PAGES[name](), "run `make pages`"


def test_no_file_contains_a_path_of_the_authors_machine():
    allowed = re.compile(r"/(usr/bin|proc/cpuinfo|dev/null|path/to)")
    command = ["git", "ls-files"] if shutil.which("git") else ["true"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    for name in listed or ["README.md"]:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yml", ".toml", ".json", ".js"}:
            text = allowed.sub("", path.read_text("utf8"))
            assert not re.search(r"(?<![\w.:/])/(work|opt|root)/\w", text), name


def test_a_figure_without_alternative_text_stops_the_build():
    picture = {"data": {"image/png": ""}, "metadata": {"image/png": {}}}
    cell = {"outputs": [picture], "metadata": {}}
    with pytest.raises(ValueError, match="1 figures"):
        alternative_texts.copy_texts({"cells": [cell]})
    picture["metadata"]["image/png"]["alt"] = "error grows"
    carried = alternative_texts.copy_texts({"cells": [cell]})["cells"][0]
    assert carried["metadata"]["mystnb"]["image"]["alt"] == "error grows"
    cell["outputs"].append(picture)
    with pytest.raises(ValueError, match="2 figures"):
        alternative_texts.copy_texts({"cells": [cell]})
