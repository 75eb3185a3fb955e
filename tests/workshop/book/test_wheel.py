"""One `pip install` of the repository runs every notebook.

The wheel has the folder `lib/attnbook` and nothing else. A copy of this folder
is imported here, in a process in which `workshop` cannot be imported.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
KERNEL = {"IPython"}  # Jupyter and Colab run notebooks with it
READ_DATA = """
from attnbook.data import cmudict, libreoffice
from attnbook.exercises.quiz import quiz
from attnbook.records import list_records, read_record
from attnbook.training.run import load_trained
from attnbook.widgets.alignment_player import AlignmentPlayer
assert cmudict.load().test and libreoffice.load().test
assert all(read_record(name) for name in list_records())
assert load_trained("grammar_attention_0")
assert "render" in AlignmentPlayer._esm
assert quiz("02_bahdanau")
"""


def list_imports(path):
    """Return the import statements of a notebook, without Jupyter's lines."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            source = re.sub(r"^(\s*)[%!].*", r"\1pass", cell.source, flags=re.M)
            nodes = ast.walk(ast.parse(source))
            found += [x for x in nodes if isinstance(x, ast.Import | ast.ImportFrom)]
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_notebook_imports_only_what_the_wheel_installs(path):
    required = {re.match(r"[\w-]+", x)[0] for x in PROJECT["project"]["dependencies"]}
    named = {
        name.partition(".")[0]
        for node in list_imports(path)
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert named <= {"attnbook", *required, *KERNEL, *sys.stdlib_module_names}


def test_the_wheel_alone_has_what_the_notebooks_import_and_read(tmp_path):
    (packed,) = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    shutil.copytree(ROOT / packed, tmp_path / "attnbook")
    lines = {ast.unparse(node) for path in CHAPTERS for node in list_imports(path)}
    code = "\n".join(
        [
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
            "sys.modules['workshop'] = None",
            *sorted(line for line in lines if "attnbook" in line),
            READ_DATA,
            f"import attnbook; assert {str(tmp_path)!r} in attnbook.__file__",
        ]
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
