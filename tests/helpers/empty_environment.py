"""A Python without any package, in which a downloaded notebook is opened."""

import subprocess
import sys


def run_cell(code, *before):
    """Run a notebook's cell in a Python that has no package at all."""
    from IPython.core.inputtransformer2 import TransformerManager

    plain = TransformerManager().transform_cell(code)
    magic = "def get_ipython():\n    return __import__('magic')\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", "".join((magic, *before, plain))],
        capture_output=True,
        text=True,
    )
