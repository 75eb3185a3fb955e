"""Which alarms about heads can be trusted: SmolLM2, sound and broken.

Axes: T positions
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from attnbook.data.libreoffice import encode_characters
from attnbook.diagnose import measure_leak
from attnbook.diagnose.head_alarms import (
    ALARMS,
    Numbers,
    compare_with_thresholds,
    measure_heads,
)
from attnbook.models import modern_decoder
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.positions.rotary import rotate_halves
from attnbook.training.language_modeling import load_character_model
from attnbook.training.loop import make_batch
from attnbook.training.run import load_trained
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import (
    SMOLLM2,
    cut_passage,
    list_sections,
    load_model,
    read_lines,
)

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


@contextmanager
def keep_weights(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Undo changes of the weights of some layers."""
    kept = [{k: v.clone() for k, v in layer.state_dict().items()} for layer in layers]
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, state in zip(layers, kept, strict=True):
            layer.load_state_dict(state)


def see_all(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return a mask that masks nothing out, in place of the causal one."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device)


def replace_code(name: str, function: Callable) -> Callable:
    """Return a fault: another function in the module of the decoder's block."""
    return lambda model: mock.patch.object(modern_decoder, name, function)


@contextmanager
def unscale_all(model: ModernDecoder) -> Iterator[None]:
    """Multiply all scores by the root of the width of a head."""
    layers = [block.attention for block in model.blocks]
    with keep_weights(layers):
        for layer in layers:
            width = layer.query.weight.shape[0] // layer.heads
            layer.query.weight.mul_(width**0.5)
        yield


@contextmanager
def randomize_all(model: ModernDecoder) -> Iterator[None]:
    """Replace the weights of all attention layers by random ones."""
    layers = [block.attention for block in model.blocks]
    rng = torch.Generator().manual_seed(0)
    with keep_weights(layers):
        for layer in layers:
            for weight in layer.parameters():
                drawn = torch.randn(weight.shape, generator=rng)
                weight.copy_(drawn * weight.square().mean().sqrt())
        yield


# Faults in all layers of a pretrained decoder.
FAULTS: dict[str, Callable] = {
    "scores not scaled": unscale_all,
    "no causal mask": replace_code("causal_mask", see_all),
    "no positions": replace_code("rotate", lambda x, positions, base: x),
    "wrong pairs rotated": replace_code("rotate", rotate_halves),
    "attention not loaded": randomize_all,
}


def list_numbers(numbers: Numbers) -> dict[str, list[float]]:
    """Return each number of all heads, layer by layer."""
    names = dict.fromkeys(name for table in numbers.values() for name in table)
    return {
        name: torch.cat([t[name] for t in numbers.values()]).tolist() for name in names
    }


def measure_speller(name: str) -> Numbers:
    """Return the numbers of a recorded run's heads, on words of one length."""
    model, data, _ = load_trained(name)
    pairs = [
        pair
        for pair in data.encode(data.splits.test)
        if (len(pair[0]), len(pair[1])) == (8, 7)
    ]
    batch = make_batch(pairs[:WORDS])[:3]
    return measure_heads(model, lambda: model(*batch).logits)


def measure_references() -> Iterator[dict]:
    """Yield the numbers of the heads of the book's trained models."""
    for name in REFERENCES:
        yield {"model": name} | list_numbers(measure_speller(name))
    model = load_character_model()
    ids = encode_characters("test")[0][: 8 * PASSAGE].view(8, PASSAGE)
    numbers = measure_heads(model, lambda: model(ids))
    yield {"model": "language_model"} | list_numbers(numbers)


def derive_thresholds(rows: Sequence[dict]) -> dict[str, float]:
    """Return the thresholds, to three significant digits."""
    found = {}
    for alarm, (name, large) in ALARMS.items():
        if name not in rows[0]:
            continue
        values = torch.tensor([x for row in rows for x in row[name]])
        share = 1 - RARE if large else RARE
        found[alarm] = float(f"{values.nanquantile(share):.3g}")
    return found


def measure_decoder(model: ModernDecoder, ids: Int[Tensor, "T"]) -> Numbers:
    """Return the numbers of a decoder's heads, without removing any."""
    return measure_heads(model, lambda: model(ids[None]), effects=False)


@torch.no_grad()
def examine(
    model: ModernDecoder,
    ids: Int[Tensor, "T"],
    limits: Mapping[str, Mapping[str, float]],
) -> dict:
    """Return how many heads raise an alarm, the loss, and the leak."""
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
    lines = read_lines()
    first, *passages = (
        cut_passage(tokenizer, lines, start, PASSAGE)
        for start in list_sections(len(lines), 1 + len(SEEDS))
    )
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
