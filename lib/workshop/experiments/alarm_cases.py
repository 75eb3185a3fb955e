"""Sound and broken models with their inputs, and the tests that they can fail.

Axes: B batch, T positions
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import causal_mask
from attnbook.diagnose import (
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_order_effect,
    measure_padding_effect,
    measure_weight_errors,
)
from attnbook.diagnose.head_alarms import watch_heads
from attnbook.models.modern_decoder import ModernDecoder
from workshop.experiments.broken_encoders import (
    LetterModel,
    Words,
    compute_loss,
)

SHORT = 6  # symbols of a decoder's inputs in tests of behavior


class Case(NamedTuple):
    """A model to be examined.

    Attributes:
        model: sound or broken.
        run: calls it and returns its output (B, T, ...).
        queries: True where a query counts.
        mask: True where a query may attend, (B, 1, T, S) or less.
        tests: the tests of behavior, by name; each returns its largest number.
        loss: of the model, in nats.
    """

    model: nn.Module
    run: Callable[[], Tensor]
    queries: Bool[Tensor, "B T"] | None
    mask: Tensor
    tests: dict[str, Callable[[], float]]
    loss: Callable[[], float]


def make_encoder_case(model: LetterModel, words: Words) -> Case:
    """Return an encoder with words, some of them as long as the batch is."""
    ids, lengths = words.ids, words.lengths
    few = ids[:8], lengths[:8]
    full = (lengths == ids.shape[1]).nonzero()[:8, 0]
    mixed = model.build.batch_first
    real = words.mark_real()

    def call(x: Tensor) -> Tensor:
        return model(x, lengths[: len(x)])

    tests = {
        "padding effect": lambda: measure_padding_effect(model, *few),
        "longer padding": lambda: measure_longer_padding(model, *few),
        "batch effect": lambda: measure_batch_effect(call, few[0]),
        "order effect": lambda: measure_order_effect(
            lambda x: model(x, lengths[full]), ids[full]
        ),
    }
    return Case(
        model,
        lambda: model(ids, lengths),
        real if mixed else None,
        real[:, None, None] if mixed else torch.tensor(True),
        {name: take_largest(test) for name, test in tests.items()},
        lambda: float(compute_loss(model, words)),
    )


def take_largest(test: Callable) -> Callable[[], float]:
    """Return a test that returns its largest number."""
    return lambda: float(torch.as_tensor(test()).amax())


def make_decoder_case(model: ModernDecoder, ids: Int[Tensor, "T"]) -> Case:
    """Return a decoder with a passage."""
    some = ids[None, :SHORT]
    pair = ids[: 2 * SHORT].view(2, SHORT)
    tests = {
        "leak": lambda: measure_leak(model, some),
        "batch effect": lambda: measure_batch_effect(model, pair),
        "order effect": lambda: measure_order_effect(model, some),
    }

    def compute_decoder_loss() -> float:
        logits = model(ids[None])[0]
        return float(F.cross_entropy(logits[:-1], ids[1:]))

    return Case(
        model,
        lambda: model(ids[None]),
        None,
        causal_mask(len(ids), len(ids), ids.device),
        {name: take_largest(test) for name, test in tests.items()},
        compute_decoder_loss,
    )


@torch.no_grad()
def measure_invalid_weights(case: Case) -> float:
    """Return the largest error of the weights of all layers.

    Weights are not valid if they are not finite, negative, on masked keys, or
    do not sum to 1.
    """
    with watch_heads(case.model) as watched:
        case.run()
    return max(
        error
        for calls in watched.values()
        for weights, _ in calls
        for error in measure_weight_errors(weights, case.mask).values()
    )
