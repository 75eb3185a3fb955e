"""The record of a benchmark: a JSON that a later run goes on with.

Chapter: chapters/11_flash_attention
Source: none
Axes: none
"""

import json
import platform
from pathlib import Path

import torch


def begun(device: str, out: Path) -> dict:
    """Return the record that is there, if this machine's, or a new one."""
    name, cudnn = platform.processor() or platform.machine(), None
    if device == "cuda":
        name, cudnn = (
            torch.cuda.get_device_name(),
            torch.backends.cudnn.version(),
        )
    try:
        import triton

        compiler = triton.__version__
    except ImportError:
        compiler = None
    made_on = {
        "device": name,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": cudnn,
            "triton": compiler,
        },
    }
    if out.exists():
        found = json.loads(out.read_text("utf8"))
        if all(found.get(k) == v for k, v in made_on.items()):
            return found
    return made_on | {"correct": {}, "wrong": {}, "rows": []}


def write(record: dict, out: Path) -> None:
    """Write the record, first to another file: a run may be stopped."""
    beside = out.with_suffix(".part")
    beside.write_text(json.dumps(record, indent=1) + "\n", "utf8")
    beside.replace(out)
