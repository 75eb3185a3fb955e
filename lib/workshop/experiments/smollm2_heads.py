"""SmolLM2's heads: scores, ablation, patching, and maps for the head explorer.

Then what the heads match and write, and attention sinks.

Axes: L layers, B sequences, H heads, G groups, T positions, P pairs of query and key,
    R distances, D width of a head, V symbols, N symbols that are looked at, C model
    width
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnbook.attention.multi_head import split_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.data import libreoffice
from attnbook.diagnose.heads import (
    mark_duplicate_tokens,
    mark_first_token,
    mark_induction,
    mark_previous_token,
    score_duplicate_token,
    score_first_token,
    score_induction,
    score_pattern,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.models.hooks import (
    Head,
    ablate_heads,
    patch_heads,
    record_heads,
)
from attnbook.models.modern_decoder import CachedBlock, ModernDecoder, RotaryAttention
from attnbook.positions.rotary import rotate
from attnbook.records import read_record
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import (
    EACH,
    LENGTHS,
    SMOLLM2,
    START,
    choose_heads,
    collect_weights,
    compute_logits,
    cut_texts,
    draw_batches,
    draw_repeated,
    draw_tokens,
    draw_unrepeated,
    list_block_inputs,
    load_model,
    measure_copying,
    measure_text,
    rank_heads,
)

SCORE_SEED = 0
Pattern = Callable[[Int[Tensor, " T"]], Bool[Tensor, "T T"]]
PATTERNS: dict[str, Pattern] = {
    "previous": lambda ids: mark_previous_token(len(ids)),
    "duplicate": mark_duplicate_tokens,
    "induction": mark_induction,
    "first": lambda ids: mark_first_token(len(ids)),
}


def score_sequences(
    weights: Float[Tensor, "L B H T T"], ids: Int[Tensor, "B T"], pattern: Pattern
) -> Float[Tensor, "B L H"]:
    return torch.stack(
        [score_pattern(weights[:, b], pattern(ids[b])) for b in range(len(ids))]
    )


def measure_scores(model: ModernDecoder, seed: int) -> dict:
    """Return the scores (L, H) of each pattern, and chance.

    Induction has its spread over sequences as well, and a control: the weights at
    the same positions of sequences without a repetition.
    """
    symbols = model.config.symbols
    scores: dict[str, list[Tensor]] = {name: [] for name in PATTERNS}
    controls, chances = [], []
    for ids, other in zip(
        draw_batches(seed, symbols, EACH),
        draw_batches(seed, symbols, EACH, draw_unrepeated),
        strict=True,
    ):
        weights = collect_weights(model, ids)
        for name, pattern in PATTERNS.items():
            scores[name].append(score_sequences(weights, ids, pattern))
        weights = collect_weights(model, other)
        controls.append(score_sequences(weights, ids, mark_induction))
        equal = uniform_causal_weights(ids.shape[1])
        chances.append([score_pattern(equal, p(ids[0])) for p in PATTERNS.values()])
    whole = {name: torch.cat(found) for name, found in scores.items()}
    chance = torch.tensor(chances, dtype=torch.double).mean(0).tolist()
    return {
        "scores": {name: tabulate(x.mean(0)) for name, x in whole.items()},
        "deviations": {"induction": tabulate(whole["induction"].std(0))},
        "controls": {"induction": tabulate(torch.cat(controls).mean(0))},
        "chance": dict(zip(PATTERNS, chance, strict=True)),
    }


def tabulate(x: Tensor, digits: int = 4) -> Any:
    """Return a tensor as nested lists of rounded numbers."""
    if not x.dim():
        return round(x.item(), digits)
    return [tabulate(row, digits) for row in x]


@recorded(seeds=[*range(SCORE_SEED, SCORE_SEED + EACH * len(LENGTHS))], **SMOLLM2)
def smollm2_heads() -> dict:
    """Record the scores of every head on random tokens.

    Each score is measured on sequences in which the pattern occurs, and again, at
    the same positions, on sequences in which it does not: the first is the score,
    the second a control for heads that attend to these positions anyway.

    Source: Olsson et al. (2022), https://arxiv.org/abs/2209.11895
    """
    return measure_scores(load_model()[0], SCORE_SEED)


SINGLE_SEED, SET_SEED, MEAN_SEED = 100, 200, 300
SINGLE_EACH, SET_EACH, MEAN_EACH = 1, 4, 2  # sequences of each length
SET_TEXTS, SET_LENGTH = 8, 64
SIZES = (1, 2, 4, 8, 16, 32)
SIZE, DRAWS = 8, 5

Means = Sequence[Float[Tensor, "H D"]]


@torch.no_grad()
def compute_means(model: ModernDecoder, batches: Sequence[Int[Tensor, "_ _"]]) -> Means:
    """Return the mean output of every head over all positions."""
    with record_heads(model) as outputs:
        for ids in batches:
            list_block_inputs(model, ids)
    return [
        torch.cat([x.transpose(1, 2).flatten(0, 1) for x in calls]).mean(dim=0)
        for calls in outputs
    ]


@torch.no_grad()
def measure_singles(
    model: ModernDecoder, copies: Sequence[Int[Tensor, "_ _"]], means: Means
) -> dict:
    """Return how much the loss of each sequence rises without one head."""
    layers, heads = len(model.blocks), model.config.heads
    inputs = [list_block_inputs(model, ids) for ids in copies]

    def copy(layer: int) -> Tensor:
        found = [
            measure_copying(model, ids, x[layer], layer)[0]
            for ids, x in zip(copies, inputs, strict=True)
        ]
        return torch.cat(found)

    whole = copy(0)
    rise: dict[str, list[Tensor]] = {"zero": [], "mean": []}
    for layer in range(layers):
        for head in range(heads):
            for name, used in (("zero", None), ("mean", means)):
                with ablate_heads(model, [(layer, head)], used):
                    rise[name].append(copy(layer) - whole)
    tables = {
        name: tabulate(torch.stack(x).unflatten(0, (layers, heads)))
        for name, x in rise.items()
    }
    return tables


def draw_others(
    chosen: Sequence[Head], heads: int, seed: int, avoid: Sequence[Head] = ()
) -> list[Head]:
    """Return as many random other heads of each layer as are chosen."""
    generator = torch.Generator().manual_seed(seed)
    found: list[Head] = []
    for layer, count in Counter(layer for layer, _ in chosen).items():
        others = [h for h in range(heads) if (layer, h) not in chosen]
        if len(others) < count:
            raise ValueError(
                f"layer {layer} has {len(others)} other heads, not {count}"
            )
        good = [h for h in others if (layer, h) not in avoid]
        others = good if len(good) >= count else others
        order = torch.randperm(len(others), generator=generator)[:count]
        found += [(layer, others[n]) for n in order.tolist()]
    return found


@torch.no_grad()
def measure_set(
    model: ModernDecoder,
    heads: Sequence[Head],
    copies: Sequence[Int[Tensor, "_ _"]],
    texts: Int[Tensor, "_ _"],
    means: Means | None = None,
) -> dict:
    """Return losses and accuracy of a model without a set of heads."""
    with ablate_heads(model, heads, means):
        accuracy = torch.cat([measure_copying(model, ids)[1] for ids in copies])
        text = measure_text(model, texts)
    return {
        "heads": [list(head) for head in heads],
        "accuracy": tabulate(accuracy),
        "text": tabulate(text),
    }


def list_sets(heads: int) -> list[dict]:
    """Return the sets that are compared: name, ablation, and heads."""
    scores = {
        name: torch.tensor(table)
        for name, table in read_record("smollm2_heads")["results"]["scores"].items()
    }
    induction = rank_heads(scores["induction"])
    previous = rank_heads(scores["previous"])
    best, before = induction[:SIZE], previous[:SIZE]
    rows: list[dict] = [{"name": "whole", "set": []}]
    rows += [{"name": "induction", "set": induction[:n]} for n in SIZES]
    rows.append({"name": "induction", "set": best, "mean": True})
    rows.append({"name": "previous", "set": before})
    for draw in range(DRAWS):
        others = draw_others(best, heads, draw, induction[: 2 * SIZE])
        rows.append({"name": "random", "set": others})
        if draw < 3:
            rows.append({"name": "random", "set": others, "mean": True})
            others = draw_others(before, heads, draw, previous[: 2 * SIZE])
            rows.append({"name": "random, previous", "set": others})
    return rows


ABLATION_SEEDS = [
    *range(SINGLE_SEED, SINGLE_SEED + SINGLE_EACH * len(LENGTHS)),
    *range(SET_SEED, SET_SEED + SET_EACH * len(LENGTHS)),
    *range(MEAN_SEED, MEAN_SEED + MEAN_EACH * len(LENGTHS)),
]


@recorded(seeds=ABLATION_SEEDS, **SMOLLM2)
def smollm2_ablation() -> dict:
    """Record the losses without each head, and without sets of heads.

    Heads are chosen by the scores of the record `smollm2_heads`; the losses are
    measured on other random tokens. Sets of heads are compared with random sets
    that have as many heads in each layer.

    Source: Michel et al. (2019), section 3, https://arxiv.org/abs/1905.10650;
        induction heads without which copying fails: Olsson et al. (2022),
        https://arxiv.org/abs/2209.11895
    """
    model, tokenizer = load_model()
    symbols = model.config.symbols
    texts = cut_texts(tokenizer, SET_TEXTS, SET_LENGTH)
    copies = draw_batches(SET_SEED, symbols, SET_EACH)
    means = compute_means(model, draw_batches(MEAN_SEED, symbols, MEAN_EACH))
    rows = []
    for row in list_sets(model.config.heads):
        used = means if row.get("mean") else None
        found = measure_set(model, row["set"], copies, texts, used)
        rows.append({"name": row["name"], "mean": bool(row.get("mean"))} | found)
    singles = measure_singles(
        model, draw_batches(SINGLE_SEED, symbols, SINGLE_EACH), means
    )
    return {"sets": rows, "singles": singles}


PATCH_SEED, PATCHED, PATCH_COUNT = 400, 8, 20
# X and Y stand at these places of the N = PATCH_COUNT tokens, from 0.
X_PLACE, Y_PLACE = 7, 13
LOOKED_AT = 12  # heads of which it is measured where their outputs matter


class Pairs(NamedTuple):
    """Clean and corrupted sequences, and what follows X in each."""

    clean: Tensor
    corrupted: Tensor
    answers: Tensor


def draw_pairs(seed: int, symbols: int, sequences: int, count: int) -> Pairs:
    """Return sequences with the seeds `seed` to `seed + sequences - 1`."""
    drawn = torch.stack(
        [draw_tokens(seed + i, count, symbols) for i in range(sequences)]
    )
    start = drawn.new_full((sequences, 1), START)
    swapped = drawn.clone()
    swapped[:, [X_PLACE, Y_PLACE]] = drawn[:, [Y_PLACE, X_PLACE]]
    again = drawn[:, : X_PLACE + 1]
    return Pairs(
        torch.cat([start, drawn, again], dim=1),
        torch.cat([start, swapped, again], dim=1),
        drawn[:, [X_PLACE + 1, Y_PLACE + 1]],
    )


def list_places() -> dict[str, list[int]]:
    """Return where a patch may be: positions in the sequence, from 0."""
    return {
        "after": [2 + X_PLACE, 2 + Y_PLACE],
        "last": [1 + PATCH_COUNT + X_PLACE],
    }


def compute_difference(
    model: ModernDecoder,
    x: Float[Tensor, "B T C"],
    answers: Int[Tensor, "B 2"],
    layer: int = 0,
) -> Float[Tensor, " B"]:
    """Return the logit of B minus that of C at the last position."""
    logits = compute_logits(model, x, layer, slice(-1, None))[:, 0]
    found = logits.gather(1, answers)
    return found[:, 0] - found[:, 1]


@torch.no_grad()
def measure_patches(
    model: ModernDecoder,
    pairs: Pairs,
    heads: Sequence[Head],
    places: Sequence[int] | None = None,
) -> dict:
    """Return the logit differences with one head patched at a time."""
    with record_heads(model) as recorded_heads:
        clean = list_block_inputs(model, pairs.clean)
    corrupted = list_block_inputs(model, pairs.corrupted)
    last = len(model.blocks)
    patched = []
    for head in heads:
        with patch_heads(model, [head], recorded_heads, places):
            x, layer = corrupted[head[0]], head[0]
            patched.append(compute_difference(model, x, pairs.answers, layer))
    return {
        "clean": compute_difference(model, clean[-1], pairs.answers, last),
        "corrupted": compute_difference(model, corrupted[-1], pairs.answers, last),
        "patched": torch.stack(patched),
    }


def compute_shares(found: dict) -> Float[Tensor, " heads"]:
    """Return the share of the difference that each patch restores."""
    lost = (found["clean"] - found["corrupted"]).mean()
    return (found["patched"] - found["corrupted"]).mean(dim=1) / lost


@recorded(seeds=[*range(PATCH_SEED, PATCH_SEED + PATCHED)], **SMOLLM2)
def smollm2_patching() -> dict:
    """Record what each head's clean output restores in a corrupted run.

    A clean sequence is a copy of random tokens, ... X B ... Y C ..., and the
    beginning of a second copy, which ends with X: B is next. The corrupted sequence
    exchanges X and Y in the first copy, so that C followed X there. Each head, one
    after the other, gets its output of the clean run in the corrupted run. What is
    measured is the share of the lost difference between the logits of B and C that
    this restores.

    Source: Vig et al. (2020), section 3, https://arxiv.org/abs/2004.12265; Meng et
        al. (2022), section 2, https://arxiv.org/abs/2202.05262
    """
    model, _ = load_model()
    pairs = draw_pairs(PATCH_SEED, model.config.symbols, PATCHED, PATCH_COUNT)
    layers, heads = len(model.blocks), model.config.heads
    everyone = [(layer, h) for layer in range(layers) for h in range(heads)]
    found = measure_patches(model, pairs, everyone)
    shares = compute_shares(found)
    best = rank_heads(shares.unflatten(0, (layers, heads)))[:LOOKED_AT]
    rows = []
    for head in best:
        row = {"head": list(head), "everywhere": float(shares[everyone.index(head)])}
        rows.append(row)
    for name, places in list_places().items():
        at = compute_shares(measure_patches(model, pairs, best, places))
        for row, share in zip(rows, at.tolist(), strict=True):
            row[name] = share
    return {
        "clean": tabulate(found["clean"], 3),
        "corrupted": tabulate(found["corrupted"], 3),
        "shares": tabulate(shares.unflatten(0, (layers, heads))),
        "patched": tabulate(found["patched"].unflatten(0, (layers, heads)), 3),
        "places": rows,
    }


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
WORDS, WORD_SEED = 10, 0
# Heads of each kind whose maps are recorded, and one that section 1 names.
COUNTS = {"previous": 3, "induction": 3, "effect": 2}
NAMED = {"layer": 24, "head": 4, "kind": "induction"}


def draw_words(text: str, fits, count: int, seed: int) -> str:
    """Return random lower-case words of a text, and then the same again."""
    words = [w for w in sorted({*re.findall(r"\b[a-z]{4,}\b", text)}) if fits(w)]
    if len(words) < count:
        raise ValueError(f"{count} words are to be drawn from {len(words)}")
    drawn = random.Random(seed).sample(words, count)
    return "".join(f" {word}" for word in drawn * 2)


@torch.no_grad()
def observe_heads(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> tuple[Float[Tensor, "L H T T"], Float[Tensor, "L H T"]]:
    """Return the weights of every head, and the norms of what it weights."""
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
    """Return the cross-entropy (nats) of each token but the first, by text."""
    logits = model(pad_sequence([*texts], batch_first=True))
    return [
        F.cross_entropy(rows[: len(ids) - 1], ids[1:], reduction="none")
        for rows, ids in zip(logits, texts, strict=True)
    ]


def measure_effects(
    model: ModernDecoder, texts: Sequence[Int[Tensor, "_"]], heads: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the losses of tokens, and their change without each head."""
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


def measure_kinds(
    maps: Sequence[Float[Tensor, "L H _ _"]],
    texts: Sequence[Int[Tensor, "_"]],
    effects: Sequence[Float[Tensor, "L H _"]],
    repeated: int,
) -> dict[str, Float[Tensor, "L H"]]:
    """Return how much each head is of each kind."""

    def average(x: Sequence[Tensor]) -> Tensor:
        return torch.stack([*x]).mean(dim=0)

    kinds = {
        "previous": average([score_previous_token(x) for x in maps]),
        "induction": score_induction(maps[repeated], texts[repeated]),
        "duplicate": score_duplicate_token(maps[repeated], texts[repeated]),
        "first": average([score_first_token(x) for x in maps]),
        "effect": average([x.mean(dim=-1) for x in effects]),
    }
    # How near each head is to the middle rank of every score.
    ranks = torch.stack([x.flatten().argsort().argsort() for x in kinds.values()])
    far = (2 * ranks - ranks.shape[1] + 1).abs().amax(dim=0)
    return kinds | {"ordinary": (-far.float()).reshape(kinds["effect"].shape)}


def describe_text(
    text: Mapping[str, str],
    tokens: Sequence[str],
    ids: Int[Tensor, "T"],
    maps: Float[Tensor, "L H T T"],
    losses: Float[Tensor, "T-1"],
    effects: Float[Tensor, "L H T-1"],
) -> dict:
    """Return what is recorded of one text: every head in three scores."""
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
    """Return what is recorded of one head on one text."""
    rows = round_to(weights, 100)
    return {
        "hundredths": [row[: t + 1] for t, row in enumerate(rows)],
        "norms": [float(f"{x:.2g}") for x in norms.tolist()],
        "effects": round_to(effects, 100),
    }


@recorded(seeds=[WORD_SEED], **SMOLLM2)
def smollm2_head_explorer() -> dict:
    """Record four sentences: scores and effects of all heads, maps of some.

    The scores of every head and the effect of its ablation on the loss are
    recorded; weights, value norms and the effects on single tokens are recorded
    for a few heads of each kind.

    Source: weights times the norms of transformed values: Kobayashi et al. (2020),
        https://arxiv.org/abs/2004.10102
    """
    model, tokenizer = load_model()
    words = draw_words(
        "\n".join(pair.source[0] for pair in libreoffice.load_text().test),
        lambda word: len(tokenizer.encode(f" {word}").ids) == 1,
        WORDS,
        WORD_SEED,
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
                text, [tokenizer.decode([i]) for i in ids.tolist()], ids, *measured
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


CIRCUIT_SEED, SEQUENCES, COUNT = 600, 6, 40
DISTANCES = 64  # distances 0 to 63
SHOWN = 3  # heads of each kind whose curves are kept
SYMBOLS = 1000  # N


def project_unrotated(
    block: CachedBlock, x: Float[Tensor, "B T C"]
) -> tuple[Float[Tensor, "B H T D"], Float[Tensor, "B H T D"]]:
    """Return queries and keys of each head before the rotation."""
    attention = block.attention
    x = block.norms[0](x)
    query = split_heads(attention.query(x), attention.heads)
    key = split_heads(attention.key(x), attention.groups)
    shared = attention.heads // attention.groups
    return query, key.repeat_interleave(shared, dim=1)


def score_at_distances(
    query: Float[Tensor, "P D"], key: Float[Tensor, "P D"], base: float, reach: int
) -> Float[Tensor, "P R"]:
    """Return the scores of pairs, the query 0 to `reach - 1` after the key."""
    P, D = query.shape
    distances = torch.arange(reach, device=query.device)
    spread = query[None, :, None].expand(1, P, reach, D)
    rotated = rotate(spread, distances, base)[0]
    return (rotated @ key[:, :, None])[..., 0] / D**0.5


def pair_up(
    query: Float[Tensor, "B T D"], key: Float[Tensor, "B T D"], count: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs of contents on repeated random tokens."""
    places = torch.arange(1, count)  # in the first copy, from 1
    queries = query[:, count + places]
    keys = key[:, 1 + places]
    moved = torch.stack([keys[b].roll(5 + 3 * b, dims=0) for b in range(len(keys))])
    flat = [x.flatten(0, 1) for x in (queries, keys, moved)]
    return {"match": (flat[0], flat[1]), "other": (flat[0], flat[2])}


def describe_match(
    model: ModernDecoder, inputs: list[Float[Tensor, "B T C"]], head: Head, count: int
) -> dict:
    """Return a head's scores by distance, of matching and of other pairs."""
    layer, number = head
    block = model.blocks[layer]
    query, key = project_unrotated(block, inputs[layer])
    pairs = pair_up(query[:, number], key[:, number], count)
    found: dict = {"head": list(head)}
    for name, (queries, keys) in pairs.items():
        scores = score_at_distances(queries, keys, block.attention.base, DISTANCES)
        whole = scores.var(correction=0)
        found[name] = {
            "mean": tabulate(scores.mean(dim=0), 3),
            "deviation": tabulate(scores.std(dim=0), 3),
            "variance": {  # shares of it
                name: float(scores.mean(dim=dim).var(correction=0) / whole)
                for name, dim in (("distance", 0), ("content", 1))
            },
        }
    return found


def apply_output_value(
    attention: RotaryAttention, x: Float[Tensor, "N C"], head: int
) -> Float[Tensor, "N C"]:
    """Return what a head adds to the residual stream if it attends to x alone."""
    D = x.shape[1] // attention.heads
    group = head // (attention.heads // attention.groups)
    W_value = attention.value.weight[group * D : (group + 1) * D]
    W_output = attention.output.weight[:, head * D : (head + 1) * D]
    return x @ W_value.T @ W_output.T


def measure_copying_heads(
    model: ModernDecoder, x: list[Float[Tensor, "N C"]], ids: Int[Tensor, " N"]
) -> dict:
    """Return, by head (L, H), how well its OV circuit names the token it reads.

    `top` is the share of tokens whose own logit is raised most of all N; `rank` the
    median share of the other tokens whose logit is raised more.
    """
    table = model.embed.get_parameter("table.weight")[ids] * model.norm.weight
    top, rank = [], []
    for block, inputs in zip(model.blocks, x, strict=True):
        normed = block.get_submodule("norms.0")(inputs)
        for head in range(block.attention.heads):
            logits = apply_output_value(block.attention, normed, head) @ table.T
            above = (logits > logits.diagonal()[:, None]).sum(dim=1)
            top.append((above == 0).float().mean())
            rank.append((above / (len(ids) - 1)).median())
    shape = len(model.blocks), model.config.heads
    tables = {"top": torch.stack(top), "rank": torch.stack(rank)}
    return {name: tabulate(x.reshape(shape)) for name, x in tables.items()}


@torch.no_grad()
def list_token_inputs(
    model: ModernDecoder, seed: int, length: int = 50
) -> tuple[list[Float[Tensor, "N C"]], Int[Tensor, " N"]]:
    ids = draw_tokens(seed, SYMBOLS, model.config.symbols)
    rows = ids.reshape(-1, length)
    start = rows.new_zeros(len(rows), 1)
    inputs = list_block_inputs(model, torch.cat([start, rows], dim=1))
    return [x[:, 1:].flatten(0, 1) for x in inputs[:-1]], ids


@recorded(seeds=[*range(CIRCUIT_SEED, CIRCUIT_SEED + SEQUENCES)], **SMOLLM2)
def smollm2_circuits() -> dict:
    """Record scores by distance, and what the OV circuits copy.

    QK: with rotary embeddings the score of a query and a key depends on their
    contents and on their distance. Contents are taken from real sequences and
    placed at distances of our choice. OV: what a head adds to the logits if it
    attends to one token alone; copying heads raise the logit of that token.

    Source: Elhage et al. (2021), https://transformer-circuits.pub/2021/framework/;
        rotary embeddings: Su et al. (2021), section 3.2,
        https://arxiv.org/abs/2104.09864
    """
    model, _ = load_model()
    symbols = model.config.symbols
    ids = torch.stack(
        [draw_repeated(CIRCUIT_SEED + i, COUNT, symbols) for i in range(SEQUENCES)]
    )
    inputs = list_block_inputs(model, ids)
    scores = read_record("smollm2_heads")["results"]["scores"]
    curves = []
    with torch.no_grad():
        for kind in ("previous", "induction"):
            for head in rank_heads(torch.tensor(scores[kind]))[:SHOWN]:
                found = describe_match(model, inputs, head, COUNT)
                curves.append({"kind": kind} | found)
        streams, tokens = list_token_inputs(model, CIRCUIT_SEED)
        embedded = [model.embed(tokens[None])[0]] * len(model.blocks)
        return {
            "curves": curves,
            "stream": measure_copying_heads(model, streams, tokens),
            "embedding": measure_copying_heads(model, embedded, tokens),
        }


SINK_TEXTS, SINK_LENGTH, SINK_SEED = 6, 128, 500
OTHER = 8  # the position that is changed in the control

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def leave(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and values as they are."""
    return weights, value


def zero_value(position: int, rescale: bool = False) -> Change:
    """Return a change: to later queries, the value at a position is zero.

    With `rescale`, the other weights then sum to 1: the position is masked out.
    """

    def change(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.clone()
        weights[:, :, position + 1 :, position] = 0.0
        if rescale:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, value

    return change


class ChangedAttention(RotaryAttention):
    """Rotary attention in which a function changes weights and values."""

    change: Change = staticmethod(leave)

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T D"]:
        return super().combine(*self.change(weights, value))


@contextmanager
def change_layers(model: ModernDecoder, change: Change) -> Iterator[None]:
    """Change weights and values in all layers while the model runs."""
    for block in model.blocks:
        block.attention.change = change
    try:
        yield
    finally:
        for block in model.blocks:
            block.attention.change = leave


@torch.no_grad()
def describe_position(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    position: int = 0,
    change: Change = leave,
) -> dict:
    """Return what a position looks like beside the later ones."""
    streams, values = [], []
    with change_layers(model, change):
        inputs = list_block_inputs(model, ids)[:-1]
    for x, block in zip(inputs, model.blocks, strict=True):
        attention = block.attention
        value = split_heads(
            attention.value(block.get_submodule("norms.0")(x)), attention.groups
        )
        streams.append(compare_norms(x, position).mean(dim=0))
        values.append(compare_norms(value, position).mean(dim=0))
    return {
        "stream": tabulate(torch.stack(streams)),
        "value": tabulate(torch.stack(values)),
    }


def compare_norms(x: Float[Tensor, "*B T D"], position: int) -> Float[Tensor, "*B"]:
    """Return the norm at a position over the median of the later ones."""
    norms = x.norm(dim=-1)
    later = norms[..., position + 1 :].median(dim=-1).values
    return norms[..., position] / later


def precede(ids: Int[Tensor, "B T"], symbols: int) -> dict[str, Tensor]:
    """Return the texts after the start symbol, a random token, and nothing."""
    first = torch.cat([draw_tokens(SINK_SEED + b, 1, symbols) for b in range(len(ids))])
    return {
        "start symbol": ids,
        "random token": torch.cat([first[:, None], ids[:, 1:]], dim=1),
        "nothing": ids[:, 1:],
    }


@recorded(seeds=[*range(SINK_SEED, SINK_SEED + SINK_TEXTS)], **SMOLLM2)
def smollm2_sinks() -> dict:
    """Record weights, norms and losses at position 0 and at another one.

    The same texts are read after <|endoftext|>, after a random token, and without
    anything before them. Two changes are made to position 0 in all layers, and as a
    control to another position: its value becomes zero to later queries, or it is
    masked out for later queries and their other weights are divided by their sum.
    If position 0 is masked out, position 1 is the first key that later queries can
    attend to: it is looked at as well.

    Source: Xiao et al. (2023), https://arxiv.org/abs/2309.17453; values with small
        norms: Gu et al. (2024), https://arxiv.org/abs/2410.10781; large activations
        at the first token: Sun et al. (2024), https://arxiv.org/abs/2402.17762
    """
    model, tokenizer = load_model(ChangedAttention)
    texts = cut_texts(tokenizer, SINK_TEXTS, SINK_LENGTH)
    changes = {
        "none": leave,
        "value 0": zero_value(0),
        "mask 0": zero_value(0, rescale=True),
        f"value {OTHER}": zero_value(OTHER),
        f"mask {OTHER}": zero_value(OTHER, rescale=True),
    }
    before, losses = precede(texts, model.config.symbols), {}
    for name, change in changes.items():
        with change_layers(model, change), torch.no_grad():
            losses[name] = measure_text(model, texts).tolist()
    return {
        "weights": {
            # The mean weight of later queries on position 0.
            name: tabulate(collect_weights(model, ids)[..., 1:, 0].mean(dim=(1, 3)))
            for name, ids in before.items()
        },
        "position 0": describe_position(model, texts),
        "position 1": describe_position(model, texts, 1),
        "position 1, mask 0": describe_position(
            model, texts, 1, zero_value(0, rescale=True)
        ),
        f"position {OTHER}": describe_position(model, texts, OTHER),
        "losses": losses,
    }
