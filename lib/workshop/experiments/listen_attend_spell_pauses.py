"""Listen, Attend and Spell after a pause longer than any in training.

The models with attention are trained as in `listen_attend_spell`. If attention
followed an expected time instead of the sound, a long pause would mislead it.

Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
"""

from collections.abc import Sequence

import torch

from attnbook.data.spoken_digits import RATE
from attnbook.diagnose.intervals import share_peaks_inside
from attnbook.models.devices import use_seed
from attnbook.models.listen_attend_spell import BANDS, make_listen_attend_spell
from workshop.experiments.device import get_device
from workshop.experiments.listen_attend_spell import (
    DIGITS,
    SCORED,
    SEEDS,
    TEST_SEED,
    TESTED,
    TRAINED,
    VOCABULARY,
    Utterance,
    draw_utterances,
    measure_word_errors,
    score_attention,
    train,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

LONGER = 2.0  # seconds added to one pause


def score_word_order(utterances: Sequence[Utterance]) -> float:
    """Return how often order alone finds a digit's time, at best.

    Digit n of N is assumed at the share (n - 1 + x) / N of the sound; the x is
    chosen for which most times are inside, among 0.05, 0.1, ... 0.95.
    """
    found = []
    for step in range(1, 20):
        hits = [
            share_peaks_inside(
                (torch.arange(n) + step / 20) / n * len(spoken.sound) / RATE,
                torch.tensor(spoken.intervals),
            )
            for spoken, _, _ in utterances
            for n in [len(spoken.digits)]
        ]
        found.append(float(torch.stack(hits).mean()))
    return max(found)


def measure_pauses() -> dict:
    """Train with attention again; test it with one much longer pause."""
    n = SCORED[0]
    tests = {
        "usual": draw_utterances(TEST_SEED + n, TESTED, (n, n)),
        "longer": draw_utterances(TEST_SEED - n, TESTED, (n, n), LONGER),
    }
    rows = []
    for seed in SEEDS:
        with use_seed(seed):
            model = make_listen_attend_spell(BANDS, len(VOCABULARY))
        model = model.to(get_device())
        train(model, draw_utterances(seed, TRAINED, DIGITS), seed)
        for name, test in tests.items():
            scores = score_attention(model, test)
            errors = measure_word_errors(model, test)
            rows.append({"seed": seed, "test": name, "word_errors": errors})
            rows[-1] |= scores
    order = {name: score_word_order(test) for name, test in tests.items()}
    return {"rows": rows, "digits": n, "seconds": LONGER, "word_order": order}


@experiment()
@recorded(SEEDS)
def listen_attend_spell_pauses() -> dict:
    """Record where attention is after a pause longer than any in training."""
    return measure_pauses()
