"""One address, set in one place: what it changes, and how it goes again."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from workshop.book import repository

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
URL = "https://github.com/jane/attention"


@pytest.fixture
def book(tmp_path):
    """A copy of what holds the address: two chapters are enough."""
    for name in ("_config.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "chapters").mkdir()
    for path in ROOT.glob("chapters/0[01]_*"):
        shutil.copy(path, tmp_path / "chapters")
    return tmp_path


def read_texts(root):
    paths = [*root.glob("*.*"), *root.glob("chapters/*")]
    return {path.relative_to(root): path.read_text("utf8") for path in paths}


def read_setup_cells(root):
    return {
        path: cell.source
        for path in sorted(root.glob("chapters/*.ipynb"))
        for cell in nbformat.read(path, as_version=4).cells
        if "setup" in cell.metadata.get("tags", [])
    }


def run_first_cell(book, *before):
    """Run the first setup cell in a Python that has no package at all."""
    source = next(iter(read_setup_cells(book).values()))
    plain = TransformerManager().transform_cell(source)
    magic = "def get_ipython():\n    return __import__('magic')\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", "".join((magic, *before, plain))],
        capture_output=True,
        text=True,
    )


def test_setting_an_address_reaches_everything(book):
    repository.set_address(book, URL)
    config = (book / "_config.yml").read_text("utf8")
    assert f"url: {URL}" in config
    assert "colab_url" in config
    assert "use_edit_page_button: true" in config
    readme = (book / "README.md").read_text("utf8")
    for path, source in read_setup_cells(book).items():
        assert repository.make_colab_address(URL, path.stem) in readme
        assert f"git+{URL}@main" in source
        assert source in path.with_suffix(".md").read_text("utf8")
    assert repository.read_address(book) == URL


def test_an_address_is_set_once_replaced_and_removed(book):
    repository.set_address(book, "")
    clean = read_texts(book)
    repository.set_address(book, URL)
    once = read_texts(book)
    assert once != clean
    repository.set_address(book, URL + ".git")
    assert read_texts(book) == once
    repository.set_address(book, "https://gitlab.com/other/one")
    assert not any(URL in text for text in read_texts(book).values())
    for name in ("README.md", "_config.yml"):  # Colab opens GitHub's alone
        assert "colab.research.google.com" not in (book / name).read_text("utf8")
    repository.set_address(book, "")
    assert read_texts(book) == clean


def test_without_the_package_the_first_cell_says_what_to_install(book):
    for url, named in (
        ("", "Download or clone the repository that this notebook comes from"),
        (URL, f'pip install "attnbook @ git+{URL}@main"'),
    ):
        repository.set_address(book, url)
        ran = run_first_cell(book)
        assert (ran.returncode, ran.stdout) == (1, "")
        (message,) = ran.stderr.splitlines()
        assert message.startswith("This notebook needs the package attnbook")
        assert named in message
        assert "restart the kernel" in message


def test_without_the_package_colab_installs_it(book):
    repository.set_address(book, URL)
    colab = "import sys, types\nsys.modules['google.colab'] = types\n"
    pip = (
        "magic = types.ModuleType('magic')\n"
        "magic.run_line_magic = lambda *x: (print(*x), sys.exit(0))\n"
        "sys.modules['magic'] = magic\n"
    )
    ran = run_first_cell(book, colab, pip)
    assert ran.stdout == f'pip install -q "attnbook @ git+{URL}@main"\n'
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.refusal
@pytest.mark.parametrize("url", ["github.com/owner/name", "https://x.org"])
def test_an_invalid_address_is_refused(book, url):
    before = read_texts(book)
    with pytest.raises(ValueError, match="is not an address like"):
        repository.set_address(book, url)
    assert read_texts(book) == before
