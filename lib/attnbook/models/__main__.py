"""Fetch the pretrained weights that some cells use: `python -m attnbook.models`.

SmolLM2-135M (93 MB) and Whisper tiny.en (71 MB) into `~/.cache/attnbook/models`.
"""

import sys

from attnbook.models import pretrained, pretrained_whisper

if __name__ == "__main__":
    try:
        for files in (
            [pretrained.WEIGHTS],
            [pretrained_whisper.WEIGHTS, pretrained_whisper.TOKENIZER],
        ):
            for file, path in zip(files, pretrained.fetch_files(*files), strict=True):
                print(f"{file.title[0].upper()}{file.title[1:]} are at {path}")
    except ValueError as error:
        sys.exit(f"{error}")
