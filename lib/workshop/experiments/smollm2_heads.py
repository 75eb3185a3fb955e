"""SmolLM2's heads: scores, ablation, patching, and maps for the head explorer.

Then what the heads match and write, and attention sinks.

Axes: L layers, B sequences, H heads, G groups, T positions, P pairs of query and key,
    R distances, D width of a head, V symbols, N symbols that are looked at, C model
    width
"""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnbook.attention.multi_head import split_heads
from attnbook.data import libreoffice
from attnbook.diagnose.heads import (
    mark_induction,
    score_duplicate_token,
    score_first_token,
    score_induction,
    score_previous_token,
    uniform_causal_weights,
)
from attnbook.models.hooks import Head, ablate_heads, patch_heads, record_heads
from attnbook.models.modern_decoder import ModernDecoder, RotaryAttention
from attnbook.positions.rotary import rotate
from attnbook.records import read_record
from workshop.experiments.record import average_rows, recorded
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
    draw_copies,
    draw_tokens,
    list_block_inputs,
    load_model,
    measure_copying,
    measure_text,
    rank_heads,
    round_causal,
)

SCORE_SEED = 0


def tabulate(x: Tensor, digits: int = 4) -> list:
    return x.double().round(decimals=digits).tolist()


@recorded(seeds=[*range(SCORE_SEED, SCORE_SEED + EACH * len(LENGTHS))], **SMOLLM2)
def smollm2_heads() -> dict:
    """Record the scores of every head on random tokens.

    Each score is measured on sequences in which the pattern occurs. Induction has its
    spread over sequences as well, and a control for heads that attend to these
    positions anyway: the same positions of sequences without a repetition.

    Source: Olsson et al. (2022), https://arxiv.org/abs/2209.11895
    """
    model, _ = load_model()
    rows, chances = [], []
    for ids, other in zip(
        draw_batches(SCORE_SEED, model.config.symbols, EACH),
        draw_batches(SCORE_SEED, model.config.symbols, EACH, repeated=False),
        strict=True,
    ):
        chance = score_heads(uniform_causal_weights(ids.shape[1]), ids[0])
        chances.append({name: float(x) for name, x in chance.items()})
        weights, control = collect_weights(model, ids), collect_weights(model, other)
        for b, sequence in enumerate(ids):
            row = score_heads(weights[:, b], sequence)
            row["duplicate"] = score_duplicate_token(weights[:, b], sequence)
            rows.append(row | {"control": score_induction(control[:, b], sequence)})
    whole = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return {
        "scores": {x: tabulate(whole[x].mean(0)) for x in (*chances[0], "duplicate")},
        "deviations": {"induction": tabulate(whole["induction"].std(0))},
        "controls": {"induction": tabulate(whole["control"].mean(0))},
        "chance": average_rows(chances),
    }


SINGLE_SEED, SET_SEED, MEAN_SEED = 100, 200, 300
SINGLE_EACH, SET_EACH, MEAN_EACH = 1, 4, 2  # sequences of each length
SET_TEXTS, SET_LENGTH = 8, 64
SIZES = (1, 2, 4, 8, 16, 32)
SIZE, DRAWS = 8, 5


def list_heads(model: ModernDecoder) -> list[Head]:
    return [*product(range(len(model.blocks)), range(model.config.heads))]


def by_layer(model: ModernDecoder, x: Float[Tensor, "LH *_"]) -> Tensor:
    """Return a table (L, H, ...) of what was found for `list_heads`."""
    return x.unflatten(0, (len(model.blocks), model.config.heads))


@torch.no_grad()
def measure_singles(
    model: ModernDecoder,
    copies: Sequence[Int[Tensor, "_ _"]],
    means: Sequence[Float[Tensor, "H D"]],
) -> dict:
    inputs = [list_block_inputs(model, ids) for ids in copies]

    def copy(layer: int) -> Tensor:
        pairs = zip(copies, inputs, strict=True)
        found = [measure_copying(model, x, y[layer], layer)[0] for x, y in pairs]
        return torch.cat(found)

    whole = copy(0)
    rise: dict[str, list[Tensor]] = {"zero": [], "mean": []}
    for layer, head in list_heads(model):
        for name, used in (("zero", None), ("mean", means)):
            with ablate_heads(model, [(layer, head)], used):
                rise[name].append(copy(layer) - whole)
    return {name: tabulate(by_layer(model, torch.stack(x))) for name, x in rise.items()}


def draw_others(
    chosen: Sequence[Head], heads: int, seed: int, avoid: Sequence[Head] = ()
) -> list[Head]:
    """Return as many random other heads of each layer as are chosen."""
    generator = torch.Generator().manual_seed(seed)
    found: list[Head] = []
    for layer, count in Counter(layer for layer, _ in chosen).items():
        others = [h for h in range(heads) if (layer, h) not in chosen]
        good = [h for h in others if (layer, h) not in avoid]
        others = good if len(good) >= count else others
        order = torch.randperm(len(others), generator=generator)[:count]
        found += [(layer, others[n]) for n in order.tolist()]
    return found


def list_sets(heads: int) -> list[tuple[str, bool, list[Head]]]:
    """Return the sets that are compared: name, whether by means, and heads."""
    scores = read_record("smollm2_heads")["results"]["scores"]
    ranked = {x: rank_heads(torch.tensor(table)) for x, table in scores.items()}
    induction, previous = ranked["induction"], ranked["previous"]
    best, before = induction[:SIZE], previous[:SIZE]
    rows: list = [("whole", False, [])]
    rows += [("induction", False, induction[:n]) for n in SIZES]
    rows += [("induction", True, best), ("previous", False, before)]
    for draw in range(DRAWS):
        others = draw_others(best, heads, draw, induction[: 2 * SIZE])
        rows.append(("random", False, others))
        if draw < 3:
            rows.append(("random", True, others))
            others = draw_others(before, heads, draw, previous[: 2 * SIZE])
            rows.append(("random, previous", False, others))
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
    with record_heads(model) as outputs:
        for ids in draw_batches(MEAN_SEED, symbols, MEAN_EACH):
            list_block_inputs(model, ids)
    flat = [[x.transpose(1, 2).flatten(0, 1) for x in calls] for calls in outputs]
    means = [torch.cat(calls).mean(dim=0) for calls in flat]
    rows = []
    for name, mean, heads in list_sets(model.config.heads):
        with ablate_heads(model, heads, means if mean else None), torch.no_grad():
            accuracy = torch.cat([measure_copying(model, ids)[1] for ids in copies])
            text = measure_text(model, texts)
        row = {"name": name, "mean": mean, "heads": heads}
        rows.append(row | {"accuracy": tabulate(accuracy), "text": tabulate(text)})
    singles = draw_batches(SINGLE_SEED, symbols, SINGLE_EACH)
    return {"sets": rows, "singles": measure_singles(model, singles, means)}


PATCH_SEED, PATCHED, PATCH_COUNT = 400, 8, 20
# X and Y stand at these places of the N = PATCH_COUNT tokens, from 0.
X_PLACE, Y_PLACE = 7, 13
LOOKED_AT = 12  # heads of which it is measured where their outputs matter
PLACES = {"after": [2 + X_PLACE, 2 + Y_PLACE], "last": [1 + PATCH_COUNT + X_PLACE]}


def draw_pairs(
    seed: int, symbols: int, sequences: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return clean and corrupted sequences, and what follows X in each."""
    drawn = torch.stack(
        [draw_tokens(seed + i, count, symbols) for i in range(sequences)]
    )
    start = drawn.new_full((sequences, 1), START)
    swapped = drawn.clone()
    swapped[:, [X_PLACE, Y_PLACE]] = drawn[:, [Y_PLACE, X_PLACE]]
    again = drawn[:, : X_PLACE + 1]
    return (
        torch.cat([start, drawn, again], dim=1),
        torch.cat([start, swapped, again], dim=1),
        drawn[:, [X_PLACE + 1, Y_PLACE + 1]],
    )


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
    *pairs, answers = draw_pairs(PATCH_SEED, model.config.symbols, PATCHED, PATCH_COUNT)
    with record_heads(model) as kept:
        right = list_block_inputs(model, pairs[0])
    wrong = list_block_inputs(model, pairs[1])

    @torch.no_grad()
    def compute_difference(x: Tensor, layer: int) -> Float[Tensor, " B"]:
        """Return the logit of B minus that of C at the last position."""
        logits = compute_logits(model, x, layer, slice(-1, None))[:, 0]
        found = logits.gather(1, answers)
        return found[:, 0] - found[:, 1]

    clean, corrupted = (compute_difference(x[-1], len(x) - 1) for x in (right, wrong))

    def patch(heads: Sequence[Head], places: Sequence[int] | None = None) -> Tensor:
        found = []
        for layer, head in heads:
            with patch_heads(model, [(layer, head)], kept, places):
                found.append(compute_difference(wrong[layer], layer))
        return torch.stack(found)

    def compute_shares(patched: Tensor) -> Float[Tensor, " heads"]:
        """Return the share of the difference that each patch restores."""
        return (patched - corrupted).mean(dim=1) / (clean - corrupted).mean()

    patched = patch(list_heads(model))
    shares = by_layer(model, compute_shares(patched))
    best = rank_heads(shares)[:LOOKED_AT]
    rows = [{"head": list(x), "everywhere": float(shares[x])} for x in best]
    for name, places in PLACES.items():
        at = compute_shares(patch(best, places))
        for row, share in zip(rows, at.tolist(), strict=True):
            row[name] = share
    return {
        "clean": tabulate(clean, 3),
        "corrupted": tabulate(corrupted, 3),
        "shares": tabulate(shares),
        "patched": tabulate(by_layer(model, patched), 3),
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


def draw_words(tokenizer) -> str:
    """Return random words of the test texts, each one token, and the same again."""
    text = "\n".join(pair.source[0] for pair in libreoffice.load_text().test)
    words = sorted({*re.findall(r"\b[a-z]{4,}\b", text)})
    words = [x for x in words if len(tokenizer.encode(f" {x}").ids) == 1]
    return "".join(f" {x}" for x in 2 * random.Random(WORD_SEED).sample(words, WORDS))


def list_values(
    model: ModernDecoder, inputs: Sequence[Float[Tensor, "B T C"]]
) -> list[Float[Tensor, "B G T D"]]:
    return [
        split_heads(block.attention.value(block.norms[0](x)), block.attention.groups)
        for x, block in zip(inputs, model.blocks, strict=False)
    ]


@torch.no_grad()
def measure_value_norms(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> Float[Tensor, "L H T"]:
    norms = []
    inputs = list_block_inputs(model, ids[None])
    for block, value in zip(model.blocks, list_values(model, inputs), strict=True):
        heads, groups = block.attention.heads, block.attention.groups
        shared = value[0].repeat_interleave(heads // groups, dim=0)
        columns = block.attention.output.weight.unflatten(1, (heads, -1))
        moved = torch.einsum("htd,chd->htc", shared, columns)
        norms.append(moved.norm(dim=-1))
    return torch.stack(norms)


@torch.no_grad()
def compute_token_losses(
    model: ModernDecoder, texts: Sequence[Int[Tensor, "_"]]
) -> list[Float[Tensor, "_"]]:
    logits = model(pad_sequence([*texts], batch_first=True))
    return [
        F.cross_entropy(rows[: len(ids) - 1], ids[1:], reduction="none")
        for rows, ids in zip(logits, texts, strict=True)
    ]


def measure_effects(
    model: ModernDecoder, texts: Sequence[Int[Tensor, "_"]]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the losses of tokens, and their change without each head."""
    losses = compute_token_losses(model, texts)
    changes: list[list[Tensor]] = [[] for _ in texts]
    for head in list_heads(model):
        with ablate_heads(model, [head]):
            found = compute_token_losses(model, texts)
        for i, without in enumerate(found):
            changes[i].append(without - losses[i])
    return losses, [by_layer(model, torch.stack(x)) for x in changes]


def round_to(x: Tensor, factor: int) -> list:
    return (x * factor).round().int().tolist()


def score_heads(
    maps: Float[Tensor, "*B T T"], ids: Int[Tensor, "T"]
) -> dict[str, Float[Tensor, "*B"]]:
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
    scores = [score_heads(*one) for one in zip(maps, texts, strict=True)]
    mean = {x: torch.stack([one[x] for one in scores]).mean(dim=0) for x in scores[0]}
    kinds = {
        "previous": mean["previous"],
        "induction": scores[repeated]["induction"],
        "duplicate": score_duplicate_token(maps[repeated], texts[repeated]),
        "first": mean["first"],
        "effect": torch.stack([x.mean(dim=-1) for x in effects]).mean(dim=0),
    }
    # How near each head is to the middle rank of every score.
    ranks = torch.stack([x.flatten().argsort().argsort() for x in kinds.values()])
    far = (2 * ranks - ranks.shape[1] + 1).abs().amax(dim=0)
    return kinds | {"ordinary": (-far.float()).reshape(kinds["effect"].shape)}


def describe_map(weights: Tensor, norms: Tensor, effects: Tensor) -> dict:
    return {
        "hundredths": round_causal(weights, 100),
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
    sentences: list[dict] = [
        {"title": "a repeated name", "text": NAME},
        {"title": "ten random words, twice", "text": draw_words(tokenizer)},
        {"title": "an ordinary sentence", "text": ORDINARY},
        {"title": "a help text", "text": HELP},
    ]
    texts = [torch.tensor(tokenizer.encode(x["text"]).ids) for x in sentences]
    maps = [collect_weights(model, ids[None])[:, 0] for ids in texts]
    norms = [measure_value_norms(model, ids) for ids in texts]
    losses, effects = measure_effects(model, texts)
    chosen = choose_heads(measure_kinds(maps, texts, effects, repeated=1), COUNTS)
    places = [(x["layer"], x["head"]) for x in chosen]
    if (NAMED["layer"], NAMED["head"]) not in places:
        chosen.append(NAMED)
    for text, ids, weights, loss, effect in zip(
        sentences, texts, maps, losses, effects, strict=True
    ):
        chance = score_heads(uniform_causal_weights(len(ids)), ids)
        text |= {
            "tokens": [tokenizer.decode([i]) for i in ids.tolist()],
            "losses": round_to(loss, 100),
            "induction_queries": int(mark_induction(ids).any(dim=-1).sum()),
            "chance": {name: round_to(x, 100)[0] for name, x in chance.items()},
            **{
                n: round_to(x.flatten(), 100)
                for n, x in score_heads(weights, ids).items()
            },
            "effect": round_to(effect.mean(dim=-1).flatten(), 1000),
        }
    seen = [*zip(maps, norms, effects, strict=True)]
    return {
        "layers": len(model.blocks),
        "heads_per_layer": model.config.heads,
        "sentences": sentences,
        "heads": [
            one
            | {
                "maps": [
                    describe_map(*(x[one["layer"], one["head"]] for x in text))
                    for text in seen
                ]
            }
            for one in chosen
        ],
    }


CIRCUIT_SEED, SEQUENCES, COUNT = 600, 6, 40
DISTANCES = 64  # distances 0 to 63
SYMBOLS = 1000  # N


def describe_match(
    model: ModernDecoder, inputs: list[Float[Tensor, "B T C"]], head: Head, count: int
) -> dict:
    """Return a head's scores by distance, of matching and of other pairs.

    Queries are of the second copy, keys one place after the same token in the first.
    """
    layer, number = head
    block, places = model.blocks[layer], torch.arange(1, count)
    attention, x = block.attention, block.norms[0](inputs[layer])
    group = number // (attention.heads // attention.groups)
    queries = split_heads(attention.query(x), attention.heads)[
        :, number, count + places
    ]
    keys = split_heads(attention.key(x), attention.groups)[:, group, 1 + places]
    moved = torch.stack([keys[b].roll(5 + 3 * b, dims=0) for b in range(len(keys))])
    found: dict = {"head": list(head)}
    for name, paired in (("match", keys), ("other", moved)):
        spread = queries.flatten(0, 1)[None, :, None].expand(-1, -1, DISTANCES, -1)
        rotated = rotate(spread, torch.arange(DISTANCES), attention.base)[0]
        scores = (rotated @ paired.flatten(0, 1)[:, :, None])[..., 0]  # (P, R)
        scores = scores / keys.shape[-1] ** 0.5
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


def measure_copying_heads(
    model: ModernDecoder, x: list[Float[Tensor, "N C"]], ids: Int[Tensor, " N"]
) -> dict:
    """Return, by head (L, H), how well its OV circuit names the token it reads.

    `top` is the share of tokens whose own logit is raised most of all N; `rank` the
    median share of the other tokens whose logit is raised more.
    """
    table = model.embed.get_parameter("table.weight")[ids] * model.norm.weight
    top, rank = [], []
    for layer, head in list_heads(model):
        block = model.blocks[layer]
        heads, groups = block.attention.heads, block.attention.groups
        values = block.attention.value.weight.unflatten(0, (groups, -1))
        output = block.attention.output.weight.unflatten(1, (heads, -1))[:, head]
        # What the head adds to the residual stream if it attends to x alone.
        value = block.norms[0](x[layer]) @ values[head * groups // heads].T
        added = value @ output.T
        logits = added @ table.T
        above = (logits > logits.diagonal()[:, None]).sum(dim=1)
        top.append((above == 0).float().mean())
        rank.append((above / (len(ids) - 1)).median())
    tables = {"top": torch.stack(top), "rank": torch.stack(rank)}
    return {name: tabulate(by_layer(model, found)) for name, found in tables.items()}


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
        [draw_copies(CIRCUIT_SEED + i, COUNT, symbols) for i in range(SEQUENCES)]
    )
    inputs = list_block_inputs(model, ids)
    scores = read_record("smollm2_heads")["results"]["scores"]
    curves = []
    with torch.no_grad():
        for kind in ("previous", "induction"):
            head = rank_heads(torch.tensor(scores[kind]))[0]
            found = describe_match(model, inputs, head, COUNT)
            curves.append({"kind": kind} | found)
        tokens = draw_tokens(CIRCUIT_SEED, SYMBOLS, symbols)
        rows = F.pad(tokens.reshape(-1, 50), (1, 0), value=START)
        read = list_block_inputs(model, rows)[:-1]
        streams = [x[:, 1:].flatten(0, 1) for x in read]
        embedded = [model.embed(tokens[None])[0]] * len(model.blocks)
        return {
            "curves": curves,
            "stream": measure_copying_heads(model, streams, tokens),
            "embedding": measure_copying_heads(model, embedded, tokens),
        }


SINK_TEXTS, SINK_LENGTH, SINK_SEED = 6, 128, 500
OTHER = 8  # the position that is changed in the control


class ChangedAttention(RotaryAttention):
    """Rotary attention in which a position's value is zero to later queries, or none's.

    With `rescale`, the other weights then sum to 1: the position is masked out.
    """

    position: int | None = None
    rescale = False

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T D"]:
        if self.position is not None:
            weights = weights.clone()
            weights[:, :, self.position + 1 :, self.position] = 0.0
        if self.rescale:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return super().combine(weights, value)


def change_layers(model: ModernDecoder, position: int | None, rescale: bool) -> None:
    for block in model.blocks:
        block.attention.position, block.attention.rescale = position, rescale


@torch.no_grad()
def describe_position(
    model: ModernDecoder, ids: Int[Tensor, "B T"], position: int
) -> dict:
    inputs = list_block_inputs(model, ids)
    found = {"stream": inputs[:-1], "value": list_values(model, inputs)}
    return {
        name: tabulate(torch.stack([compare_norms(x, position).mean(0) for x in parts]))
        for name, parts in found.items()
    }


def compare_norms(x: Float[Tensor, "*B T D"], position: int) -> Float[Tensor, "*B"]:
    """Return the norm at a position over the median of the later ones."""
    norms = x.norm(dim=-1)
    later = norms[..., position + 1 :].median(dim=-1).values
    return norms[..., position] / later


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
        "none": (None, False),
        "value 0": (0, False),
        "mask 0": (0, True),
        f"value {OTHER}": (OTHER, False),
        f"mask {OTHER}": (OTHER, True),
    }
    seeds = range(SINK_SEED, SINK_SEED + len(texts))
    first = torch.stack([draw_tokens(x, 1, model.config.symbols) for x in seeds])
    before = {
        "start symbol": texts,
        "random token": torch.cat([first, texts[:, 1:]], dim=1),
        "nothing": texts[:, 1:],
    }
    losses, places = {}, {}
    for name, change in changes.items():
        change_layers(model, *change)
        with torch.no_grad():
            losses[name] = measure_text(model, texts).tolist()
        if name == "mask 0":
            places["position 1, mask 0"] = describe_position(model, texts, 1)
    change_layers(model, None, False)
    for position in (0, 1, OTHER):
        places[f"position {position}"] = describe_position(model, texts, position)
    return {
        "weights": {
            # The mean weight of later queries on position 0.
            name: tabulate(collect_weights(model, ids)[..., 1:, 0].mean(dim=(1, 3)))
            for name, ids in before.items()
        },
        **places,
        "losses": losses,
    }
