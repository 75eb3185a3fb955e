"""What the division by √D does: to the gradient, and to training.

Source: the conjecture is that of Vaswani et al. (2017), section 3.2.1,
    https://arxiv.org/abs/1706.03762; the experiments are ours.
Axes: B batch, S keys, D width of query and key, E value width
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.scaled_dot_product import (
    attention_weights,
    scores_gradient,
)
from attnbook.models.devices import use_seed
from attnbook.models.lookup_models import LookupBatch, LookupModel, draw_lookup
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded

WIDTHS = tuple(2**n for n in range(2, 11))
DRAWS, QUERIES, KEYS, VALUE = 10, 256, 64, 16
STEPS, TRAINED_WIDTHS, SEEDS = 1000, (16, 64, 256), (0, 1, 2)
# "shrunk" divides nothing, but begins with vectors that are D^(1/4) smaller.
VARIANTS = ("scaled", "plain", "shrunk")
RECIPES = (("adam", 1e-3), ("adam", 1e-2), ("adam", 1e-1), ("sgd", 1.0), ("sgd", 10.0))


def measure_gradients(width: int, scale: float, seed: int) -> dict[str, float]:
    """Return the sizes of everything for random lookups of one width.

    The loss of a lookup is half the squared distance between what it returns
    and the value of its first key, which is the right one. `wrong_pairs_share`
    is the share, in the sum of the sizes of all gradients of scores, of the two
    largest gradients of a lookup, where neither is that of the right key.
    """
    rng = torch.Generator().manual_seed(1000 * seed + width)
    query = torch.randn(QUERIES, 1, width, generator=rng)
    key = torch.randn(QUERIES, KEYS, width, generator=rng)
    value = torch.randn(QUERIES, KEYS, VALUE, generator=rng)
    weights = attention_weights(query, key, scale=scale)
    upstream = weights @ value - value[:, :1]
    w = weights[:, 0]
    on_scores = scores_gradient(weights, upstream @ value.mT)[:, 0]
    sizes, norms = on_scores.abs(), on_scores.norm(dim=-1)
    two = sizes.topk(2)
    both_wrong = (two.indices != 0).all(dim=-1)
    found = {
        "variance": (scale * (query @ key.mT)).var(),
        "entropy": torch.special.entr(w).sum(-1).mean(),
        "largest": w.amax(-1).mean(),
        "scores": norms.mean(),
        "scores_median": norms.median(),
        "right_median": sizes[:, 0].median(),
        "wrong_pairs_share": two.values.sum(dim=-1)[both_wrong].sum() / sizes.sum(),
    }
    return {name: float(x) for name, x in found.items()}


def compute_factor(variant: str, width: int) -> float:
    return width**-0.5 if variant == "scaled" else 1.0


def build_model(variant: str, width: int, symbols: int = 32) -> LookupModel:
    """Return the model to train, from the global seed."""
    model = LookupModel(
        *(symbols, symbols, symbols),
        width=width,
        value=64,
        scale=compute_factor(variant, width),
    )
    if variant == "shrunk":
        with torch.no_grad():
            for table in model.query, model.key:
                table.weight.mul_(width**-0.25)
    return model


def compute_loss_and_weights(model: LookupModel, task) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss in nats, the share of wrong answers, the weights."""
    logits, weights = model(*task[:3])
    loss = F.cross_entropy(logits.flatten(0, 1), task.answer.flatten())
    wrong = (logits.argmax(-1) != task.answer).double().mean()
    return loss, wrong, weights


def train(variant: str, width: int, kind: str, rate: float, seed: int) -> dict:
    """Train a model to look up, and return what became of it."""
    with use_seed(seed):
        model = build_model(variant, width)
    optimisers: dict[str, Callable] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    rng = torch.Generator().manual_seed(seed)
    largest: list[float] = []

    def compute_loss(task: LookupBatch) -> Tensor:
        loss, _, weights = compute_loss_and_weights(model, task)
        largest.append(float(weights.detach().amax(-1).mean()))
        return loss

    optimize(
        optimisers[kind](model.parameters(), lr=rate),
        (draw_lookup(32, 16, 32, 8, rng) for _ in range(STEPS)),
        compute_loss,
    )
    with torch.no_grad():
        _, wrong, _ = compute_loss_and_weights(model, draw_lookup(512, 16, 32, 8, rng))
    return {"error": float(wrong), "largest": [largest[0], largest[-1]]}


@recorded(seeds=range(DRAWS))
def scaling_gradients() -> dict:
    """Record sizes of weights and gradients over D, with and without 1/√D."""
    results = {}
    for variant in VARIANTS[:2]:
        for width in WIDTHS:
            scale = compute_factor(variant, width)
            draws = [measure_gradients(width, scale, n) for n in range(DRAWS)]
            results[f"{variant} {width}"] = {
                k: [draw[k] for draw in draws] for k in draws[0]
            }
    return results


@recorded(seeds=SEEDS)
def scaling_training() -> dict:
    """Record a model that only attends, trained with and without 1/√D."""
    results = {}
    for kind, rate in RECIPES:
        for width in TRAINED_WIDTHS:
            for variant in VARIANTS:
                runs = [train(variant, width, kind, rate, n) for n in SEEDS]
                results[f"{kind} {rate:g} {width} {variant}"] = {
                    k: [made[k] for made in runs] for k in runs[0]
                }
    return results
