"""One address, set in one place: what it changes, and how it goes again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from built_pages import HTML
from empty_environment import run_cell
from workshop.book import repository

pytestmark = pytest.mark.precision
ROOT = Path(__file__).parents[3]
BUILDER = Path(sys.executable).with_name("jupyter-book")
URL = "https://github.com/jane/attention"


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """A copy of the book; its first three notebooks alone have outputs.

    Chapter 2 is among them: the first page shows its alignment player.
    """
    root = tmp_path_factory.mktemp("bare")
    for name in ("_config.yml", "_toc.yml", "README.md", "references.bib"):
        shutil.copy(ROOT / name, root)
    for name in ("chapters", "lib"):
        shutil.copytree(
            ROOT / name,
            root / name,
            ignore=shutil.ignore_patterns("*.safetensors", "*.bz2", "*.pyc"),
        )
    for path in sorted(root.glob("chapters/[0-9][0-9]_*.ipynb"))[3:]:
        notebook = json.loads(path.read_text("utf8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = []
        path.write_text(json.dumps(notebook), "utf8")
        nbformat.write(nbformat.read(path, as_version=4), path)
    return root


@pytest.fixture
def book(bare, tmp_path):
    return shutil.copytree(bare, tmp_path / "book")


def texts(root):
    return {
        path.relative_to(root): path.read_text("utf8")
        for pattern in ("_config.yml", "README.md", "chapters/[0-9]*")
        for path in root.glob(pattern)
    }


def setup_cells(root):
    for path in sorted(root.glob("chapters/[0-9][0-9]_*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if "setup" in cell.metadata.get("tags", []):
                yield path, cell.source


def test_setting_an_address_reaches_everything(book):
    repository.set_address(book, URL)
    config = (book / "_config.yml").read_text("utf8")
    assert f"url: {URL}" in config
    assert "colab_url" in config
    assert "use_edit_page_button: true" in config
    chapters = sorted(book.glob("chapters/[0-9][0-9]_*.md"))
    readme = (book / "README.md").read_text("utf8")
    for path in chapters:
        assert repository.make_colab_address(URL, path.stem) in readme
        assert f"git+{URL}@main" in path.read_text("utf8")
    found = dict(setup_cells(book))
    assert len(found) == len(chapters)
    for path, source in found.items():
        assert f"git+{URL}@main" in source
        assert source in path.with_suffix(".md").read_text("utf8")


def test_an_address_is_set_once_replaced_and_removed(book):
    before = texts(book)
    repository.set_address(book, "")
    clean = texts(book)
    repository.set_address(book, URL)
    once = texts(book)
    assert once != clean
    repository.set_address(book, URL + ".git")
    assert texts(book) == once
    repository.set_address(book, "https://github.com/other/one")
    assert not any(URL in text for text in texts(book).values())
    repository.set_address(book, "")
    assert texts(book) == clean
    if URL not in str(before):
        assert before == clean


def test_colab_is_offered_only_where_it_can_open_a_notebook(book):
    repository.set_address(book, "https://gitlab.com/jane/attention")
    config = (book / "_config.yml").read_text("utf8")
    assert "url: https://gitlab.com/jane/attention" in config
    assert "use_edit_page_button: true" in config
    assert "launch_buttons" not in config
    readme = (book / "README.md").read_text("utf8")
    assert "colab.research.google.com" not in readme
    assert all("git+https://gitlab.com" in x for _, x in setup_cells(book))


def test_the_checkout_contains_at_most_one_address():
    config = (ROOT / "_config.yml").read_text("utf8")
    url = repository.read_address(ROOT)
    assert repository.set_config(config, url) == config
    found = dict(setup_cells(ROOT))
    assert len(found) == len([*ROOT.glob("chapters/[0-9][0-9]_*.md")])
    for path, source in found.items():
        assert repository.set_cell(source, url) == source
        text = path.with_suffix(".md").read_text("utf8")
        assert repository.set_chapter(text, url) == text
        assert text.count(source) == 1


def test_the_address_is_read_back(book):
    repository.set_address(book, URL)
    assert repository.read_address(book) == URL
    repository.set_address(book, "")
    assert repository.read_address(book) == ""


COLAB_TOO = "import sys, types\nsys.modules['google.colab'] = types\n"


def test_without_the_package_the_first_cell_says_what_to_install(book):
    for url, named in (
        ("", "Download or clone the repository that this notebook comes from"),
        (URL, f'pip install "attnbook @ git+{URL}@main"'),
    ):
        repository.set_address(book, url)
        for path, source in setup_cells(book):
            ran = run_cell(source)
            assert ran.returncode == 1, path
            assert ran.stdout == ""
            (message,) = ran.stderr.splitlines()
            assert message.startswith("This notebook needs the package attnbook")
            assert named in message
            assert "restart the kernel" in message
            assert url or "http" not in message


def test_without_the_package_colab_installs_it(book):
    repository.set_address(book, URL)
    pip = (
        "import types\n"
        "magic = types.ModuleType('magic')\n"
        "magic.run_line_magic = lambda *x: (print(*x), sys.exit(0))\n"
        "sys.modules['magic'] = magic\n"
    )
    for _, source in setup_cells(book):
        ran = run_cell(source, COLAB_TOO, pip)
        assert ran.stdout == f'pip install -q "attnbook @ git+{URL}@main"\n'
        assert (ran.returncode, ran.stderr) == (0, "")


def test_with_the_package_the_check_prints_nothing():
    for url in ("", URL):
        code = repository.set_cell("", url)
        ran = subprocess.run(
            [sys.executable, "-c", code.replace("%pip", "pass #")],
            capture_output=True,
            text=True,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def has_buttons(root):
    page = next(root.glob("chapters/00_*.html")).read_text("utf8")
    links = ("colab.research.google.com" in page, "/edit/main/" in page)
    assert len({*links}) == 1
    return links[0]


def test_a_page_built_with_an_address_has_the_buttons(book):
    repository.set_address(book, URL)
    # One chapter is enough. Its links to others lead nowhere: warnings pass.
    contents = (
        "format: jb-book\nroot: chapters/index\nparts:\n- caption: The course\n"
        "  chapters:\n  - file: chapters/00_before_you_start\n"
    )
    (book / "_toc.yml").write_text(contents, "utf8")
    subprocess.run([BUILDER, "build", str(book), "-q"], check=True, capture_output=True)
    assert has_buttons(book / "_build/html")


@pytest.mark.browser
def test_a_page_built_without_an_address_has_no_buttons():
    assert has_buttons(HTML) == bool(repository.read_address(ROOT))


@pytest.mark.parametrize("url", ["github.com/owner/name", "https://x.org"])
def test_an_invalid_address_is_refused(book, url):
    before = texts(book)
    with pytest.raises(ValueError, match="is not an address like"):
        repository.set_address(book, url)
    assert texts(book) == before
