"""Which alarms about heads can be trusted: SmolLM2, sound and broken.

Axes: T positions
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from attnbook.data.libreoffice import encode_characters
from attnbook.diagnose import measure_leak
from attnbook.diagnose.head_alarms import (
    ALARMS,
    Numbers,
    compare_with_thresholds,
    measure_heads,
)
from attnbook.models import modern_decoder
from attnbook.models.modern_decoder import ModernDecoder, RotaryAttention
from attnbook.positions.rotary import rotate_halves
from attnbook.training.language_modeling import load_character_model
from attnbook.training.loop import make_batch
from attnbook.training.run import load_trained
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import SMOLLM2, cut_passages, load_model

SEEDS = (0, 1, 2)
REFERENCES = (
    *(f"cmudict_heads_8_{seed}" for seed in SEEDS),
    "cmudict_transformer_0",
    "grammar_transformer_0",
)
# One head in a hundred of the reference models is beyond a threshold.
RARE = 0.01
WORDS, PASSAGE = 256, 32
SHORT = 6  # symbols of the inputs in the test of behavior


def replace_code(name: str, function: Callable) -> Callable:
    """Return a fault: another function in the module of the decoder's block."""
    return lambda model: mock.patch.object(modern_decoder, name, function)


@contextmanager
def change_weights(model: ModernDecoder, change: Callable) -> Iterator[None]:
    """Change the weights of all attention layers, and undo it."""
    kept, rng = deepcopy(model.state_dict()), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for block in model.blocks:
            change(block.attention, rng)
        yield
    model.load_state_dict(kept)


def unscale(layer: RotaryAttention, rng: torch.Generator) -> None:
    """Multiply all scores by the root of the width of a head."""
    width = layer.query.weight.shape[0] // layer.heads
    layer.query.weight.mul_(width**0.5)


def randomize(layer: RotaryAttention, rng: torch.Generator) -> None:
    for weight in layer.parameters():
        drawn = torch.randn(weight.shape, generator=rng)
        weight.copy_(drawn * weight.square().mean().sqrt())


# Faults in all layers of a pretrained decoder.
FAULTS: dict[str, Callable] = {
    "scores not scaled": partial(change_weights, change=unscale),
    "no causal mask": replace_code(
        "causal_mask", lambda T, S, device: torch.ones(T, S, dtype=torch.bool)
    ),
    "no positions": replace_code("rotate", lambda x, positions, base: x),
    "wrong pairs rotated": replace_code("rotate", rotate_halves),
    "attention not loaded": partial(change_weights, change=randomize),
}


def list_numbers(numbers: Numbers) -> dict[str, list[float]]:
    names = dict.fromkeys(name for table in numbers.values() for name in table)
    return {
        name: torch.cat([t[name] for t in numbers.values()]).tolist() for name in names
    }


def measure_speller(name: str) -> Numbers:
    model, data, _ = load_trained(name)
    pairs = [
        pair
        for pair in data.encode(data.splits.test)
        if (len(pair[0]), len(pair[1])) == (8, 7)
    ]
    batch = make_batch(pairs[:WORDS])[:3]
    return measure_heads(model, lambda: model(*batch).logits)


def measure_references() -> Iterator[dict]:
    for name in REFERENCES:
        yield {"model": name} | list_numbers(measure_speller(name))
    model = load_character_model()
    ids = encode_characters("test")[0][: 8 * PASSAGE].view(8, PASSAGE)
    numbers = measure_heads(model, lambda: model(ids))
    yield {"model": "language_model"} | list_numbers(numbers)


def derive_thresholds(rows: Sequence[dict]) -> dict[str, float]:
    found = {}
    for alarm, (name, large) in ALARMS.items():
        if name not in rows[0]:
            continue
        values = torch.tensor([x for row in rows for x in row[name]])
        share = 1 - RARE if large else RARE
        found[alarm] = float(f"{values.nanquantile(share):.3g}")
    return found


def measure_decoder(model: ModernDecoder, ids: Int[Tensor, "T"]) -> Numbers:
    return measure_heads(model, lambda: model(ids[None]), effects=False)


@torch.no_grad()
def examine(
    model: ModernDecoder,
    ids: Int[Tensor, "T"],
    limits: Mapping[str, Mapping[str, float]],
) -> dict:
    numbers = measure_decoder(model, ids)
    logits = model(ids[None])[0]
    raised = {}
    for source, thresholds in limits.items():
        alarms = compare_with_thresholds(numbers, thresholds)
        raised[source] = len({(x.layer, x.head) for x in alarms})
    return {
        "raised": raised,
        "loss": float(F.cross_entropy(logits[:-1], ids[1:])),
        "leak": float(torch.as_tensor(measure_leak(model, ids[None, :SHORT])).amax()),
    }


@recorded(seeds=SEEDS, **SMOLLM2)
def head_alarms() -> dict:
    """Record how many heads of SmolLM2 raise an alarm, sound and with faults.

    The thresholds are quantiles over the heads of the book's trained models
    ("book"), or of the sound SmolLM2 on another passage ("own").
    """
    references = list(measure_references())
    model, tokenizer = load_model()
    first, *passages = cut_passages(tokenizer, 1 + len(SEEDS), PASSAGE)
    own = derive_thresholds([list_numbers(measure_decoder(model, first))])
    book = derive_thresholds(references)
    limits = {"book": {k: book[k] for k in own}, "own": own}
    rows = []
    for seed, ids in enumerate(passages):
        rows.append({"fault": "sound", "seed": seed} | examine(model, ids, limits))
        for name, fault in FAULTS.items():
            with fault(model):
                found = examine(model, ids, limits)
            rows.append({"fault": name, "seed": seed} | found)
    return {
        "thresholds": {"book": book, "own": own},
        "references": references,
        "rows": rows,
    }
