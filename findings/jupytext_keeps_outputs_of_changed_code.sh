#!/usr/bin/env bash
# jupytext 1.19.6: a paired notebook whose text file was edited.
#
# Only the text has changed: 1 + 1 became 1 + 2. After `--update` the notebook holds the
# new code beside the output of the old one, with its execution count, and nothing says
# so. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q jupytext==1.19.6 nbformat
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import pathlib
import subprocess
import sys

import nbformat

notebook = nbformat.v4.new_notebook()
output = nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=1)
notebook.cells = [
    nbformat.v4.new_code_cell("1 + 1", outputs=[output], execution_count=1)
]
nbformat.write(notebook, "page.ipynb")


def run(*options):
    subprocess.run([sys.executable, "-m", "jupytext", "-q", *options], check=True)


run("--to", "md:myst", "page.ipynb")
text = pathlib.Path("page.md")
text.write_text(text.read_text().replace("1 + 1", "1 + 2"))
run("--to", "ipynb", "--update", "page.md")
(cell,) = nbformat.read("page.ipynb", as_version=4).cells
print("code:", cell.source, "| output:", cell.outputs[0].data["text/plain"])
assert cell.source == "1 + 2"
assert cell.outputs[0].data["text/plain"] == "2"
assert cell.execution_count == 1
PYTHON
