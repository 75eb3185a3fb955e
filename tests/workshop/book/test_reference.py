"""Pages that the build makes: the library's reference, records and costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnbook.records import list_records
from workshop.book import generated
from workshop.book.reference import write_reference

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "lib/attnbook"
PACKAGES = sorted(path.parent.name for path in LIBRARY.glob("*/__init__.py"))


def fill(name):
    return generated.fill_text(f"<!-- made by the build: {name} -->", ROOT)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_a_page_and_links_to_chapters_that_exist(name):
    assert f"reference {name} -->" in (
        ROOT / f"chapters/reference/{name}.md"
    ).read_text("utf8")
    for linked in re.findall(r"\]\(\.\./(\w+)\.ipynb\)", fill(f"reference {name}")):
        assert (ROOT / f"chapters/{linked}.md").exists()


def test_classes_are_listed_with_constructor_and_methods(tmp_path):
    folder = tmp_path / "lib/attnbook/attention"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Attention."""\n')
    (folder / "scaled_dot_product.py").write_text(
        '"""A module."""\n\n'
        "class Layer(Module):\n"
        '    """A layer.\n\n    More."""\n\n'
        "    def __init__(self, width: int, *, heads: int = 1, f=max): ...\n"
        "    def forward(self, x: Float[Tensor, 'T C']) -> Tensor: ...\n"
        "    @staticmethod\n    def load(path): ...\n"
        "    def _inner(self): ...\n\n"
        "def _hidden(): ...\n"
    )
    page = write_reference(folder, tmp_path)
    assert "Layer(width: int, *, heads: int = 1, f=max)\n" in page
    assert "Layer.forward(x: Float[Tensor, 'T C']) -> Tensor\n" in page
    assert "Layer.load(path)\n" in page
    assert "A layer.\n" in page
    assert "[chapter 4](../04_scaled_dot_product.ipynb)" in page
    for absent in "More.", "hidden", "inner":
        assert absent not in page


def test_an_exercise_is_listed_with_its_stars():
    page = fill("reference exercises")
    assert "check_softmax(attempt) -> Verdict" in page
    assert "★, 5 minutes." in page


def test_every_record_is_listed():
    page = fill("runs")
    assert all(f"| `{name}` |" in page for name in list_records())


def test_a_mark_that_names_nothing_is_refused():
    with pytest.raises(ValueError, match="'costs' is none of"):
        fill("costs")


def test_building_pages_imports_no_torch():
    code = (
        "import sys; from pathlib import Path; from workshop.book import generated;"
        "[make(Path()) for make in generated.MAKERS.values()];"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
