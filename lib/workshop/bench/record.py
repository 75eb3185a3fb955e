"""The folder of a run: what it was run on, and a file for each finished step."""

import hashlib
import json
import shlex
import sys
from datetime import date
from pathlib import Path

import torch

LIBRARY = Path(__file__).parents[2]
NO_GPU = "no CUDA device: nothing to measure"


def describe_machine() -> dict[str, str]:
    """Return what a timing belongs to: the GPU, versions, the library's code."""
    import triton
    from torch.utils import collect_env

    code = hashlib.sha256()
    for path in sorted(LIBRARY.glob("**/*.py")):
        code.update(f"{path.relative_to(LIBRARY)}\n".encode() + path.read_bytes())
    found = {
        "device": torch.cuda.get_device_name(),
        "driver": collect_env.get_nvidia_driver_version(collect_env.run),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuDNN": torch.backends.cudnn.version(),
        "triton": triton.__version__,
        "code": code.hexdigest()[:16],
    }
    return {name: str(value) for name, value in found.items()}


def write_json(path: Path, content: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", "utf8")
    part.replace(path)


def open_folder(folder: Path) -> None:
    """Begin a folder or go on with one; exit where its results are not comparable."""
    if not (torch.cuda.is_available() and torch.version.cuda):
        raise SystemExit(NO_GPU)
    machine, path = describe_machine(), folder / "machine.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = shlex.join(sys.orig_argv)
        day = date.today().isoformat()
        write_json(path, machine | {"date": day, "command": command})
        return
    found = json.loads(path.read_text("utf8"))
    for name, value in machine.items():
        if found.get(name) != value:
            raise SystemExit(
                f"{folder} has results with {name} {found.get(name)}, and here it is "
                f"{value}: name another folder"
            )
