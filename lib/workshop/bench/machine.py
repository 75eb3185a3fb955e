"""What a timing belongs to: the GPU, its driver and clocks, versions, our code.

Importing it imports no torch, so that `make gpu` can say that there is none.
"""

import hashlib
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path(__file__).parents[2]
# What decides a number of the record: kernels, ceilings and how both are
# measured and checked.
MEASURED = (
    "attnbook/flash/*.py",
    "attnbook/profiling/roofline.py",
    "attnbook/profiling/timing.py",
    *(
        f"workshop/bench/{name}.py"
        for name in (
            "accuracy",
            "comparison",
            "flash",
            "implementations",
            "rows",
            "timing",
        )
    ),
)
FIXED = {
    "sm_max_MHz": "clocks.max.sm",
    "memory_max_MHz": "clocks.max.mem",
    "power_limit_W": "power.limit",
}
NOW = {
    "sm_MHz": "clocks.sm",
    "memory_MHz": "clocks.mem",
    "power_W": "power.draw",
    "temperature_C": "temperature.gpu",
}


def list_files(patterns: Iterable[str], folder: Path = LIBRARY) -> list[Path]:
    """Return the files of both packages that patterns name, sorted."""
    return sorted({p for each in patterns for p in folder.glob(each)})


def hash_code(paths: Iterable[Path]) -> str:
    """Return 16 digits that change with the name or text of any file."""
    total = hashlib.sha256()
    for path in paths:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.name} {content}\n".encode())
    return total.hexdigest()[:16]


def query_nvidia_smi(fields: Iterable[str]) -> list[str | None]:
    """Return what the driver's tool says of the GPU in use; None: nothing."""
    import torch

    fields = list(fields)
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    name = f"GPU-{str(uuid).removeprefix('GPU-')}"
    which = ["-i", name] if uuid else []
    command = [
        "nvidia-smi",
        *which,
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        printed = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return [None] * len(fields)
    values: list[str | None] = [x.strip() for x in printed.splitlines()[0].split(",")]
    return values if len(values) == len(fields) else [None] * len(fields)


def read_clocks(device: str, fields: dict[str, str] = NOW) -> dict:
    """Return clocks, power and temperature; empty on a CPU."""
    if device != "cuda":
        return {}
    return dict(zip(fields, query_nvidia_smi(fields.values()), strict=True))


def read_versions(device: str) -> dict:
    """Return the versions that a timing depends on."""
    import torch

    try:
        import triton

        compiler = triton.__version__
    except ImportError:
        compiler = None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if device == "cuda" else None,
        "triton": compiler,
    }


def identify(device: str, code: str) -> dict:
    """Return what two runs share whose results belong to one record.

    Args:
        device: "cuda" or "cpu".
        code: hash of the code that was run.
    """
    import torch

    name, driver = platform.processor() or platform.machine(), None
    if device == "cuda":
        name = torch.cuda.get_device_name()
        (driver,) = query_nvidia_smi(["driver_version"])
    return {
        "device": name,
        "versions": read_versions(device),
        "driver": driver,
        "clocks": read_clocks(device, FIXED),
        "code": code,
    }


def detect_flash_backend() -> str:
    """Return which implementation PyTorch's "flash" backend is."""
    from torch.nn import attention

    tell = getattr(attention, "current_flash_attention_impl", None)
    return (tell() if tell else None) or "built in"
