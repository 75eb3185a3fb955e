"""What each head of SmolLM2 does in four sentences, for the head explorer.

The scores of every head and the effect of its ablation on the loss are
recorded; weights, value norms and the effects on single tokens are recorded
for a few heads of each kind.

Source: weights times the norms of transformed values: Kobayashi et al. (2020),
    https://arxiv.org/abs/2004.10102
Axes: L layers, H heads, T positions
"""

import random
import re
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnbook.attention.self_attention import causal_mask
from attnbook.diagnose.heads import (
    mark_induction,
    score_duplicate_token,
    score_first_token,
    score_induction,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.models.head_edits import ablate_heads
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2 import read_help_text
from workshop.experiments.smollm2_map import choose_heads
from workshop.experiments.smollm2_text import SMOLLM2

NAME = (
    "Mary Albrecht lost her dog. The next day, a boy returned the dog to Mary Albrecht."
)
ORDINARY = (
    "The farmer closed the gate because it had rained all night and the river "
    "was rising."
)
HELP = (
    "Use the Val function to convert a string that represents a number into "
    "numeric data type."
)
WORDS, SEED = 10, 0
# Heads of each kind whose maps are recorded, and one that section 1 names.
COUNTS = {"previous": 3, "induction": 3, "effect": 2}
NAMED = {"layer": 24, "head": 4, "kind": "induction"}


def draw_words(text: str, fits, count: int = WORDS, seed: int = SEED) -> str:
    """Return random lower-case words of a text, and then the same again.

    Args:
        text: whose words are drawn.
        fits: whether a word may be drawn.
        count: of different words.
        seed: of the draw.

    Raises:
        ValueError: if fewer words fit.
    """
    words = [w for w in sorted({*re.findall(r"\b[a-z]{4,}\b", text)}) if fits(w)]
    if len(words) < count:
        raise ValueError(f"{count} words are to be drawn from {len(words)}")
    drawn = random.Random(seed).sample(words, count)
    return "".join(f" {word}" for word in drawn * 2)


@torch.no_grad()
def observe_heads(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> tuple[Float[Tensor, "L H T T"], Float[Tensor, "L H T"]]:
    """Return the weights of every head, and the norms of what it weights.

    The norm at position s is that of the value vector of the head's group
    times the head's columns of the output projection: times the weight, it is
    the norm of what the head adds to a query's output from position s.
    """
    x = model.embed(ids[None])
    mask = causal_mask(len(ids), len(ids), ids.device)
    maps, norms = [], []
    for block in model.blocks:
        attention = block.attention
        y = block.get_submodule("norms.0")(x)
        query, key, value = attention.project(y, y)
        maps.append(attention.attend(query, key, value, mask)[1][0])
        shared = value[0].repeat_interleave(attention.heads // value.shape[1], dim=0)
        columns = attention.output.weight.unflatten(1, (attention.heads, -1))
        moved = torch.einsum("htd,chd->htc", shared, columns)
        norms.append(moved.norm(dim=-1))
        x, _ = block(x)
    return torch.stack(maps), torch.stack(norms)


@torch.no_grad()
def compute_token_losses(
    model: ModernDecoder, texts: Sequence[Int[Tensor, "_"]]
) -> list[Float[Tensor, "_"]]:
    """Return the cross-entropy (nats) of each token but the first, by text.

    All texts run as one batch; later positions do not change earlier ones, so
    a short text is filled up at its end.
    """
    logits = model(pad_sequence([*texts], batch_first=True))
    return [
        F.cross_entropy(rows[: len(ids) - 1], ids[1:], reduction="none")
        for rows, ids in zip(logits, texts, strict=True)
    ]


def measure_effects(
    model: ModernDecoder, texts: Sequence[Int[Tensor, "_"]], heads: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the losses of tokens, and their change without each head.

    Args:
        model: whose heads are set to zero, one at a time.
        texts: of T tokens each.
        heads: H.

    Returns:
        For each text the losses (T - 1,) and their changes (L, H, T - 1).
    """
    losses = compute_token_losses(model, texts)
    changes: list[list[Tensor]] = [[] for _ in texts]
    for layer in range(len(model.blocks)):
        for head in range(heads):
            with ablate_heads(model, [(layer, head)]):
                found = compute_token_losses(model, texts)
            for i, without in enumerate(found):
                changes[i].append(without - losses[i])
    shape = (len(model.blocks), heads)
    return losses, [torch.stack(x).unflatten(0, shape) for x in changes]


def round_to(x: Tensor, factor: int) -> list:
    """Return numbers times a factor, rounded to whole ones."""
    return (x * factor).round().int().tolist()


def score_heads(
    maps: Float[Tensor, "*B T T"], ids: Int[Tensor, "T"]
) -> dict[str, Float[Tensor, "*B"]]:
    """Return the three scores that the explorer shows, of every head."""
    return {
        "first": score_first_token(maps),
        "previous": score_previous_token(maps),
        "induction": score_induction(maps, ids),
    }


def find_ordinary(
    scores: Sequence[Float[Tensor, "L H"]],
) -> Float[Tensor, "L H"]:
    """Return how near each head is to the middle rank of every score."""
    ranks = torch.stack([x.flatten().argsort().argsort() for x in scores])
    far = (2 * ranks - ranks.shape[1] + 1).abs().amax(dim=0)
    return (-far.float()).reshape(scores[0].shape)


def measure_kinds(
    maps: Sequence[Float[Tensor, "L H _ _"]],
    texts: Sequence[Int[Tensor, "_"]],
    effects: Sequence[Float[Tensor, "L H _"]],
    repeated: int,
) -> dict[str, Float[Tensor, "L H"]]:
    """Return how much each head is of each kind.

    Args:
        maps: the weights of every head on each text.
        texts: their tokens.
        effects: the changes of their losses without each head.
        repeated: which text decides on induction and duplicate-token heads.
    """

    def average(x: Sequence[Tensor]) -> Tensor:
        return torch.stack([*x]).mean(dim=0)

    kinds = {
        "previous": average([score_previous_token(x) for x in maps]),
        "induction": score_induction(maps[repeated], texts[repeated]),
        "duplicate": score_duplicate_token(maps[repeated], texts[repeated]),
        "first": average([score_first_token(x) for x in maps]),
        "effect": average([x.mean(dim=-1) for x in effects]),
    }
    return kinds | {"ordinary": find_ordinary([*kinds.values()])}


def describe_text(
    text: Mapping[str, str],
    tokens: Sequence[str],
    ids: Int[Tensor, "T"],
    maps: Float[Tensor, "L H T T"],
    losses: Float[Tensor, "T-1"],
    effects: Float[Tensor, "L H T-1"],
) -> dict:
    """Return what is recorded of one text: every head in three scores.

    Scores are in hundredths, losses in hundredths of a nat, and the changes of
    the mean loss, `effect`, in thousandths of a nat; heads are in the order of
    layers. `chance` has the scores of equal weights.
    """
    chance = score_heads(uniform_causal_weights(len(ids)), ids)
    scores = score_heads(maps, ids)
    return {
        **text,
        "tokens": [*tokens],
        "losses": round_to(losses, 100),
        "induction_queries": int(mark_induction(ids).any(dim=-1).sum()),
        "chance": {name: round_to(x, 100)[0] for name, x in chance.items()},
        **{name: round_to(x.flatten(), 100) for name, x in scores.items()},
        "effect": round_to(effects.mean(dim=-1).flatten(), 1000),
    }


def describe_map(
    weights: Float[Tensor, "T T"],
    norms: Float[Tensor, "T"],
    effects: Float[Tensor, "T-1"],
) -> dict:
    """Return what is recorded of one head on one text.

    `hundredths` are 100 times the weights on the keys up to the query; `norms`
    are those of transformed values, to two digits; `effects`, the changes of
    the losses, are in hundredths of a nat.
    """
    rows = round_to(weights, 100)
    return {
        "hundredths": [row[: t + 1] for t, row in enumerate(rows)],
        "norms": [float(f"{x:.2g}") for x in norms.tolist()],
        "effects": round_to(effects, 100),
    }


@experiment(on_cpu=True)
@recorded(
    seeds=[SEED],
    **SMOLLM2,
)
def smollm2_head_explorer() -> dict:
    """Record four sentences: scores and effects of all heads, maps of some."""
    model, tokenizer = load_smollm2(), load_smollm2_tokenizer()
    words = draw_words(
        read_help_text(),
        lambda word: len(tokenizer.encode(f" {word}").ids) == 1,
    )
    sentences = [
        {"title": "a repeated name", "text": NAME},
        {"title": "ten random words, twice", "text": words},
        {"title": "an ordinary sentence", "text": ORDINARY},
        {"title": "a help text", "text": HELP},
    ]
    texts = [torch.tensor(tokenizer.encode(x["text"]).ids) for x in sentences]
    observed = [observe_heads(model, ids) for ids in texts]
    maps, norms = zip(*observed, strict=True)
    H = model.config.heads
    losses, effects = measure_effects(model, texts, H)
    kinds = measure_kinds(maps, texts, effects, repeated=1)
    chosen = choose_heads(kinds, COUNTS)
    found = {(x["layer"], x["head"]) for x in chosen}
    if (NAMED["layer"], NAMED["head"]) not in found:
        chosen.append(NAMED)
    return {
        "layers": len(model.blocks),
        "heads_per_layer": H,
        "sentences": [
            describe_text(
                text,
                [tokenizer.decode([i]) for i in ids.tolist()],
                ids,
                *measured,
            )
            for text, ids, *measured in zip(
                sentences, texts, maps, losses, effects, strict=True
            )
        ],
        "heads": [
            {
                **{name: one[name] for name in ("layer", "head", "kind")},
                "maps": [
                    describe_map(*(x[one["layer"], one["head"]] for x in seen))
                    for seen in zip(maps, norms, effects, strict=True)
                ],
            }
            for one in chosen
        ],
    }
