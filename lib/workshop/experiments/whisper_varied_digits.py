"""Whisper on the sounds on which Listen, Attend and Spell is tested.

Whisper has not been trained on these sounds, and Listen, Attend and Spell on
nothing else.

Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from attnbook.data.spoken_digits import RATE, SpokenDigits
from attnbook.models.log_mel import log_mel_spectrogram
from attnbook.models.whisper import Whisper, transcribe_greedily
from attnbook.models.whisper_tiny import (
    END,
    PACKAGE,
    SHA256,
    START,
    load_whisper,
    load_whisper_tokenizer,
)
from attnbook.training.metrics import symbol_error_rate
from workshop.experiments.listen_attend_spell import (
    TEST_SEED,
    TESTED,
    draw_utterances,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.whisper_digits import read_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

COUNTS, LIMIT, KEPT = (4, 8), 40, 8  # digits, tokens, transcriptions kept


@torch.no_grad()
def transcribe(model: Whisper, tokenizer: "Tokenizer", spoken: SpokenDigits) -> str:
    """Return the text that greedy decoding generates for one sound."""
    spectrogram = log_mel_spectrogram(spoken.sound, RATE, model.config.mels)
    memory = model.encoder(spectrogram[None])
    [ids] = transcribe_greedily(model.decoder, memory, START, END, LIMIT)
    return tokenizer.decode(ids)


def measure_row(
    model: Whisper, tokenizer: "Tokenizer", sounds: Sequence[SpokenDigits]
) -> dict:
    """Return the word error rate, and the first transcriptions."""
    texts = [transcribe(model, tokenizer, spoken) for spoken in sounds]
    said = [tuple(read_words(text)) for text in texts]
    wanted = [[tuple(map(str, spoken.digits))] for spoken in sounds]
    return {
        "word_errors": symbol_error_rate(said, wanted),
        "said": texts[:KEPT],
        "digits": [list(spoken.digits) for spoken in sounds[:KEPT]],
    }


def measure_everything(
    model: Whisper, tokenizer: "Tokenizer", tested: int = TESTED
) -> dict:
    """Return one row for each number of digits."""
    rows = []
    for count in COUNTS:
        drawn = draw_utterances(TEST_SEED + count, tested, (count, count))
        sounds = [one.spoken for one in drawn]
        row = measure_row(model, tokenizer, sounds)
        rows.append({"count": count} | row)
    return {"rows": rows, "tested": tested}


@experiment(on_cpu=True)
@recorded(
    [TEST_SEED + n for n in COUNTS],
    weights={"package": PACKAGE, "sha256": SHA256},
)
def whisper_varied_digits() -> dict:
    """Record Whisper's word errors on digits that vary."""
    return measure_everything(load_whisper(), load_whisper_tokenizer())
