#!/usr/bin/env bash
# jupyter-book 2.1.7 on a book of version 1: success, and no page.
#
# The folder has _config.yml, _toc.yml and one page. `jupyter-book build --html` and
# `build --strict --html` say that they find no site configuration, end with status 0,
# and write no HTML. Version 1 builds the same folder. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q jupyter-book==2.1.7
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import os
import pathlib
import subprocess
import sys

os.mkdir("book")
os.chdir("book")
pathlib.Path("_config.yml").write_text("title: A book\n")
pathlib.Path("_toc.yml").write_text("format: jb-book\nroot: index\n")
pathlib.Path("index.md").write_text("# A book\n\nOne page.\n")
command = pathlib.Path(sys.executable).with_name("jupyter-book")
for options in (["--html"], ["--strict", "--html"]):
    done = subprocess.run(
        [command, "build", *options], capture_output=True, text=True, timeout=300
    )
    pages = [*pathlib.Path().rglob("*.html")]
    print("build", *options, "ends with", done.returncode, "and", len(pages), "pages")
    assert done.returncode == 0
    assert not pages
PYTHON
