#!/usr/bin/env bash
# nbval 0.11.0: a figure that has changed.
#
# The stored output of a cell is a picture of another colour than the one that the code
# makes. A strict run (--nbval) passes. A cell stored without outputs and without an
# execution count passes as well, whatever it prints. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q nbval==0.11.0 pytest==9.2.0 ipykernel==7.4.0 nbformat
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import base64
import struct
import subprocess
import sys
import zlib

import nbformat

code = '''
import base64, struct, zlib
from IPython.display import Image, display


def chunk(kind, data):
    crc = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + crc


header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
pixel = zlib.compress(bytes([0, *COLOR]))
png = bytes.fromhex("89504e470d0a1a0a") + chunk(b"IHDR", header)
png += chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
'''.strip()
space = {"COLOR": (255, 0, 0)}
exec(code.replace("from IPython.display import Image, display", ""), space)
picture = {"image/png": base64.b64encode(space["png"]).decode()}
picture["text/plain"] = "<IPython.core.display.Image object>"
cells = [
    nbformat.v4.new_code_cell("COLOR = (0, 0, 255)\n" + code, execution_count=1),
    nbformat.v4.new_code_cell(
        "display(Image(png))",
        outputs=[nbformat.v4.new_output("display_data", picture)],
        execution_count=2,
    ),
    nbformat.v4.new_code_cell("print('never stored')"),
]
notebook = nbformat.v4.new_notebook(cells=cells)
notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
nbformat.write(notebook, "page.ipynb")
command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env"]
done = subprocess.run([*command, "page.ipynb"], capture_output=True, text=True)
print(done.stdout.strip().splitlines()[-1])
assert done.returncode == 0 and "3 passed" in done.stdout
PYTHON
