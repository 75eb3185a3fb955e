"""One `pip install` of the repository runs every notebook.

The wheel has the folder `lib/attnbook` and nothing else. A copy of this folder
is imported here, in a process in which `workshop` cannot be imported.
"""

import ast
import json
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
# Jupyter and Colab run notebooks with IPython.
KERNEL = {"IPython"}
# A separate process runs each piece of code it reads and prints the error.
INSTALLED = """
import json, sys, traceback
sys.path.insert(0, {folder!r})
sys.modules["workshop"] = None
for line in sys.stdin:
    try:
        exec(json.loads(line), {})
        error = ""
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), flush=True)
"""
READ_DATA = """
import attnbook
from attnbook.data import cmudict, grammar, libreoffice
from attnbook.exercises.quiz import quiz
from attnbook.records import list_records, read_record
from attnbook.training.trained import load_trained
from attnbook.widgets.alignment_player import AlignmentPlayer
assert attnbook.__file__.startswith({folder!r}), attnbook.__file__
assert cmudict.load().test and libreoffice.load().test
assert all(read_record(name) for name in list_records())
assert load_trained("grammar_attention_0")
assert "render" in AlignmentPlayer._esm
assert quiz("02_bahdanau")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Yield a function that runs code without `workshop` and returns errors."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(
        ROOT / "lib/attnbook",
        folder / "attnbook",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    place = repr(str(folder))
    child = subprocess.Popen(
        [sys.executable, "-c", INSTALLED.replace("{folder!r}", place)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(code):
        message = json.dumps(code.replace("{folder!r}", place))
        child.stdin.write(message + "\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    yield run
    child.stdin.close()
    child.wait()
    child.stdout.close()


def list_imports(path):
    """Return the import statements of a notebook, without Jupyter's lines."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            source = re.sub(r"^(\s*)[%!].*", r"\1pass", cell.source, flags=re.M)
            found += [
                node
                for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.Import | ast.ImportFrom)
            ]
    return found


def list_packages(nodes):
    """Return the top-level packages that import statements name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
        else:
            names |= {alias.name.partition(".")[0] for alias in node.names}
    return names


def test_the_wheel_contains_attnbook_alone():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["lib/attnbook"]}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_notebook_imports_only_what_the_wheel_installs(path):
    required = {
        re.match(r"[\w-]+", line)[0] for line in PROJECT["project"]["dependencies"]
    }
    allowed = {"attnbook", *required, *KERNEL, *sys.stdlib_module_names}
    assert list_packages(list_imports(path)) <= allowed


def test_an_import_of_the_workshop_is_found():
    nodes = ast.parse("import workshop.bench\nfrom torch import nn").body
    assert list_packages(nodes) == {"workshop", "torch"}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_notebook_finds_its_imports_in_the_wheel(installed, path):
    lines = {ast.unparse(node) for node in list_imports(path)}
    lines = sorted(line for line in lines if "attnbook" in line)
    assert lines
    assert installed("\n".join(lines)) == ""


def test_the_wheel_contains_the_data_that_notebooks_read(installed):
    assert installed(READ_DATA) == ""


def test_a_missing_module_or_a_failed_assertion_is_reported(installed):
    assert "ModuleNotFoundError" in installed("import workshop.bench")
    assert "AssertionError" in installed("assert False")
