"""SmolLM2 when its queries attend to selected keys only.

Axes: L layers, B batch, H heads, G groups, T positions, R the queries among them that
    are looked at, C model width
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook import masks
from attnbook.attention.multi_head import grouped_scores, merge_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import (
    LightningIndexer,
    compute_indexer_loss,
    score_mean_keys,
    select_top_blocks,
    select_top_keys,
    sum_over_blocks,
)
from attnbook.models.modern_decoder import Cache, ModernDecoder, RotaryAttention
from attnbook.models.recurrent import count_parameters
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import (
    LENGTH,
    MAPS,
    PASSAGES,
    SMOLLM2,
    TRAINING,
    count_bytes,
    cut_passage,
    list_sections,
    load_model,
    read_lines,
)

PAGE = 16  # keys of a block, in which a GPU would read them
CHUNK = 256  # queries


class Layer(NamedTuple):
    """What a selection can use of a layer.

    Attributes:
        number: of the layer, from 0.
        x: its input, (B, T, C).
        query: rotated queries, (B, H, R, D).
        key: its rotated keys, (B, G, T, D).
        rows: the positions of these queries, (R,): all of them, or some.
        causal: True where a query can attend, (R, T).
    """

    number: int
    x: Tensor
    query: Tensor
    key: Tensor
    rows: Tensor
    causal: Tensor

    def compute_weights(self) -> Float[Tensor, "B H R T"]:
        """Return the weights of full attention."""
        scores = grouped_scores(self.query, self.key)
        return scores.masked_fill_(~self.causal, -torch.inf).softmax(-1)

    def at(self, rows: Int[Tensor, "R"]) -> "Layer":
        """Return the same with some of all queries."""
        return self._replace(
            query=self.query[:, :, rows], rows=rows, causal=self.causal[rows]
        )


Selection = Callable[[Layer], Tensor]


def select_in_chunks(select: Selection, size: int = CHUNK) -> Selection:
    """Return the same selection, computed for some queries at a time.

    The first queries can attend to few keys: half of the scores are not needed.
    A layer with only some of its queries is not divided.
    """

    def select_chunks(layer: Layer) -> Tensor:
        T = layer.key.shape[2]
        if len(layer.rows) != T:
            return select(layer)
        parts = []
        for rows in layer.rows.split(size):
            end = int(rows[-1]) + 1
            chunk = layer.at(rows)._replace(
                x=layer.x[:, :end],
                key=layer.key[:, :, :end],
                causal=layer.causal[rows, :end],
            )
            parts.append(F.pad(select(chunk), (0, T - end)))
        return torch.cat(parts, dim=-2)

    return select_chunks


def select_all(layer: Layer) -> Bool[Tensor, "R T"]:
    """Return the causal mask."""
    return layer.causal


class SelectedAttention(RotaryAttention):
    """Rotary attention in which a function selects the keys of each query.

    Attributes:
        select: returns a mask, True where a query attends; it is set from
            outside, by `set_selection`, as is `index`.
        counts: what `count_keys` found when the layer ran last.
    """

    select: Selection = staticmethod(select_all)
    index = 0
    counts: Tensor | None = None

    def decode(
        self,
        x: Float[Tensor, "B T C"],
        cache: Cache | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache]:
        """Return attention to the selected keys; without a cache."""
        query, key, value = self.project(x, x)
        rows = torch.arange(x.shape[1], device=x.device)
        causal = causal_mask(len(rows), len(rows), x.device)
        layer = Layer(self.index, x, query, key, rows, causal)
        kept = self.select(layer) & causal
        shared = [
            y.repeat_interleave(self.heads // self.groups, dim=1) for y in (key, value)
        ]
        output = F.scaled_dot_product_attention(query, *shared, attn_mask=kept)
        kept = kept.expand(len(x), self.heads, *causal.shape)
        self.counts = count_keys(kept, self.groups)
        return self.output(merge_heads(output)), (key, value)


def count_keys(
    kept: Bool[Tensor, "B H T T"], groups: int, page: int = PAGE
) -> Float[Tensor, "3"]:
    """Return how much a query of the second half keeps, on average.

    Returns:
        Keys of a head; different keys of the heads that share a key-value
        head; different blocks of such keys.
    """
    late = kept[:, :, kept.shape[2] // 2 :]
    union = late.unflatten(1, (groups, -1)).any(dim=2)
    blocks = union.unflatten(-1, (-1, page)).any(dim=-1)
    means = [x.sum(-1, dtype=torch.float).mean() for x in (late, union, blocks)]
    return torch.stack(means)


def list_attention(model: ModernDecoder) -> list[SelectedAttention]:
    """Return the attention of each layer.

    Raises:
        ValueError: if the model was built with another class.
    """
    found = []
    for block in model.blocks:
        if not isinstance(block.attention, SelectedAttention):
            raise ValueError(
                "build the model with SelectedAttention, not with "
                f"{type(block.attention).__name__}"
            )
        found.append(block.attention)
    return found


def set_selection(model: ModernDecoder, select: Selection) -> None:
    """Let every layer of a model select its keys with a function."""
    for index, attention in enumerate(list_attention(model)):
        attention.select, attention.index = select, index


@torch.no_grad()
def compute_losses(model: ModernDecoder, ids: Int[Tensor, "T"]) -> Float[Tensor, "_"]:
    """Return the cross-entropy (nats) of each symbol of the second half.

    The first of these symbols is predicted from half of the passage; logits of
    the first half are not computed.
    """
    half = len(ids) // 2
    x = model.embed(ids[None])
    for block in model.blocks:
        x, _ = block(x)
    table = model.embed.get_parameter("table.weight")
    logits = model.norm(x[0, half:-1]) @ table.T
    return F.cross_entropy(logits, ids[half + 1 :], reduction="none")


def measure_selection(
    model: ModernDecoder, passages: Sequence[Int[Tensor, "T"]], select: Selection
) -> dict:
    """Return the loss of each passage, and how many keys a query keeps.

    Returns:
        `losses`: nats a symbol, of each passage; means over queries, layers
        and passages: `keys` of a head, `group_keys` of the heads that share a
        key-value head, and `group_blocks`, the blocks of 16 that hold these.
    """
    set_selection(model, select)
    losses, counts = [], []
    for ids in passages:
        losses.append(float(compute_losses(model, ids).mean()))
        counts.extend(x.counts for x in list_attention(model))
    mean = torch.stack(counts).mean(dim=0).tolist()
    names = ("keys", "group_keys", "group_blocks")
    return {"losses": losses} | dict(zip(names, mean, strict=True))


EVERY = 4  # of the queries of the second half, in `observe_weights`
SHARE = 0.9


@dataclass(frozen=True)
class Variant:
    """A way to select keys.

    Attributes:
        name: of it.
        select: returns the mask of the keys that each query keeps.
        settings: what else is written down: its kind and its numbers.
    """

    name: str
    select: Selection
    settings: dict = field(default_factory=dict)


def keep_window(size: int, sinks: int, length: int) -> Variant:
    """Return the last `size` keys, the query's own among them, and the first."""
    mask = masks.window(length, length, size)
    mask = mask | masks.sinks(length, length, sinks)
    name = f"window {size}, {sinks} sink{'' if sinks == 1 else 's'}"
    settings = {"kind": "window", "window": size, "sinks": sinks}
    return Variant(name, lambda layer: mask[layer.rows], settings)


def keep_top(count: int) -> Variant:
    """Return an oracle: the keys with the largest weights of each head."""

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        return select_top_keys(layer.compute_weights(), layer.causal, count)

    settings = {"kind": "oracle keys", "count": count}
    return Variant(f"oracle top {count}", select_in_chunks(select), settings)


def keep_top_blocks(count: int, size: int = PAGE) -> Variant:
    """Return an oracle: the blocks with the largest weights of each head."""

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        blocks = sum_over_blocks(layer.compute_weights(), size)
        return select_top_blocks(blocks, layer.causal, count, size)

    settings = {"kind": "oracle blocks", "count": count, "size": size}
    name = f"oracle {count} blocks of {size}"
    return Variant(name, select_in_chunks(select), settings)


def keep_mean_blocks(count: int, size: int = PAGE, first: int = 0) -> Variant:
    """Return the blocks whose mean key has the largest product with a query.

    Args:
        count: blocks of a head's query, its own among them.
        size: keys of a block.
        first: 1 if the first block always counts as one of them, else 0.
    """

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        scores = score_mean_keys(layer.query, layer.key, size, layer.rows)
        scores[..., :first] = torch.inf
        return select_top_blocks(scores, layer.causal, count, size)

    name = f"mean keys, {count} blocks of {size}"
    name += ", the first among them" if first else ""
    settings = {"kind": "mean keys", "count": count, "size": size}
    return Variant(name, select, settings | {"first": bool(first)})


def list_variants() -> list[Variant]:
    """Return what is compared, full attention first."""
    return [
        Variant("full", select_all, {"kind": "full"}),
        *(keep_window(size, n, LENGTH) for size in (64, 256) for n in (0, 1, 4)),
        *map(keep_top, (8, 32, 128)),
        keep_top_blocks(8),
        keep_mean_blocks(8),
        keep_mean_blocks(8, first=1),
    ]


def count_needed_keys(
    weights: Float[Tensor, "*B R T"], share: float = SHARE
) -> Int[Tensor, "*B R"]:
    """Return how few keys carry a share of each query's weight."""
    ordered = weights.sort(dim=-1, descending=True).values
    return (ordered.cumsum(dim=-1) < share).sum(dim=-1) + 1


def drop_first(weights: Float[Tensor, "*B R T"]) -> Float[Tensor, "*B R T-1"]:
    """Return the weights of the other keys, divided by their sum."""
    rest = weights[..., 1:]
    return rest / rest.sum(dim=-1, keepdim=True)


@torch.no_grad()
def observe_weights(
    model: ModernDecoder, ids: Int[Tensor, "T"], variants: Sequence[Variant]
) -> dict:
    """Return what the weights of full attention look like on a passage.

    Every fourth query of the second half is looked at.

    Returns:
        `loss`; for each layer and head `first_token_weight` (mean over the
        queries), `needed_keys` (median number of keys that carry 90 % of the
        weight) and `needed_keys_without_first` (the same of the other keys and
        their weights); and `kept_weight`, the mean share of the weight that
        the keys of each variant carry.
    """
    rows = torch.arange(len(ids) // 2, len(ids), EVERY)
    found: list[dict] = []

    def look(layer: Layer) -> Tensor:
        some = layer.at(rows)
        weights = some.compute_weights()
        rest = drop_first(weights)
        found.append(
            {
                "first_token_weight": weights[0, ..., 0].mean(-1),
                "needed_keys": count_needed_keys(weights)[0].median(-1).values,
                "needed_keys_without_first": (
                    count_needed_keys(rest)[0].median(-1).values
                ),
                "kept_weight": [
                    float((weights * v.select(some)).sum(-1).mean()) for v in variants
                ],
            }
        )
        return layer.causal

    set_selection(model, look)
    loss = float(compute_losses(model, ids).mean())
    tables = {
        name: [one[name].tolist() for one in found]
        for name in found[0]
        if name != "kept_weight"
    }
    kept = torch.tensor([one["kept_weight"] for one in found]).mean(dim=0)
    return {"loss": loss, "kept_weight": kept.tolist()} | tables


def round_table(table: list, digits: int = 3) -> list:
    """Return nested lists of numbers, rounded."""
    return [
        round_table(x, digits) if isinstance(x, list) else round(x, digits)
        for x in table
    ]


@recorded(on_cpu=True, seeds=[], **SMOLLM2)
def smollm2_keys() -> dict:
    """Record losses with some of the keys only, and the weights of all.

    The model stays as it was trained; keys are left out in all layers at once, and
    positions stay those of the text. An oracle computes all weights of a layer,
    keeps the largest, and attends to their keys alone.

    Source: windows with and without the first symbols: Xiao et al. (2023),
        https://arxiv.org/abs/2309.17453; blocks by their mean key: Lu et al.
        (2025), https://arxiv.org/abs/2502.13189
    """
    model, tokenizer = load_model(SelectedAttention)
    lines = read_lines()
    starts = list_sections(len(lines), PASSAGES)
    passages = [cut_passage(tokenizer, lines, i, LENGTH) for i in starts]
    variants = list_variants()
    seen = [observe_weights(model, ids, variants) for ids in passages]
    rows = []
    for i, variant in enumerate(variants):
        row = {"name": variant.name} | variant.settings
        row |= measure_selection(model, passages, variant.select)
        row["kept_weight"] = [one["kept_weight"][i] for one in seen]
        rows.append(row)
    half = LENGTH // 2
    return {
        "variants": rows,
        "length": LENGTH,
        "predicted": LENGTH - half - 1,
        "first_lines": starts,
        "bytes": [count_bytes(tokenizer, ids[half + 1 :]) for ids in passages],
        "groups": model.config.groups,
        **{
            name: round_table([one[name] for one in seen])
            for name in (
                "first_token_weight",
                "needed_keys",
                "needed_keys_without_first",
            )
        },
    }


INDEXER_HEADS, INDEXER_SIZE = 4, 32
BATCHES = 12  # of the queries of a passage: one step of the optimizer each
INDEXER_RATE = 3e-3
SEED = 0


def build_indexers(model: ModernDecoder, seed: int) -> list[LightningIndexer]:
    """Return an indexer for each layer."""
    config = model.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [
            LightningIndexer(config.width, INDEXER_HEADS, INDEXER_SIZE, config.base)
            for _ in range(config.blocks)
        ]


def train_indexers(
    model: ModernDecoder,
    indexers: Sequence[LightningIndexer],
    passages: Sequence[Int[Tensor, "T"]],
    seed: int,
    rate: float = INDEXER_RATE,
) -> list[float]:
    """Train the indexers once on each passage; return the loss of each.

    The queries of a passage are divided at random into `BATCHES`. The loss is
    the mean over the layers, of each batch before its step.
    """
    rng = torch.Generator().manual_seed(seed)
    optimizers = [torch.optim.Adam(x.parameters(), rate) for x in indexers]
    losses: list[float] = []

    def learn(layer: Layer) -> Bool[Tensor, "T T"]:
        weights = layer.compute_weights()
        order = torch.randperm(len(layer.rows), generator=rng)
        for rows in order.chunk(BATCHES):
            with torch.enable_grad():
                scores = indexers[layer.number](layer.x, rows)
                loss = compute_indexer_loss(
                    scores, weights[:, :, rows], layer.causal[rows]
                )
            optimizers[layer.number].zero_grad()
            loss.backward()
            optimizers[layer.number].step()
            losses[-1] += float(loss.detach()) / BATCHES / len(indexers)
        return layer.causal

    set_selection(model, learn)
    for i, ids in enumerate(passages):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate * (1 - i / len(passages))
        losses.append(0.0)
        run_blocks(model, ids)
    return losses


@torch.no_grad()
def run_blocks(model: ModernDecoder, ids: Int[Tensor, "T"]) -> None:
    """Run the blocks of a model on a passage, without computing logits."""
    x = model.embed(ids[None])
    for block in model.blocks:
        x, _ = block(x)


def keep_indexed(indexers: Sequence[LightningIndexer], count: int) -> Variant:
    """Return the keys with the largest scores of the layer's indexer."""

    def select(layer: Layer) -> Bool[Tensor, "B 1 R T"]:
        scores = indexers[layer.number](layer.x, layer.rows)
        return select_top_keys(scores, layer.causal, count)[:, None]

    name = f"indexer top {count}"
    return Variant(name, select_in_chunks(select), {"kind": "indexer"})


def keep_shared_top(count: int) -> Variant:
    """Return an oracle for all heads: the largest mean weights."""

    def select(layer: Layer) -> Bool[Tensor, "B 1 R T"]:
        mean = layer.compute_weights().mean(dim=1, keepdim=True)
        return select_top_keys(mean, layer.causal, count)

    name = f"shared oracle top {count}"
    return Variant(name, select_in_chunks(select), {"kind": "shared oracle"})


def list_indexed_variants(
    indexers: Sequence[LightningIndexer],
) -> list[tuple[int, Variant]]:
    """Return what is compared, and the number of keys at which it is.

    The record `smollm2_keys` has more variants on the same passages, among
    them 8 blocks of 16 keys by their mean keys.
    """
    return [
        (32, keep_shared_top(32)),
        (32, keep_indexed(indexers, 32)),
        (32, keep_mean_blocks(2)),
        (32, keep_window(31, 1, LENGTH)),
        (128, keep_shared_top(128)),
        (128, keep_indexed(indexers, 128)),
        (128, keep_window(127, 1, LENGTH)),
    ]


def cut_passages(tokenizer) -> tuple[list[Tensor], list[Tensor]]:
    """Return the passages to train on, in random order, and those measured."""
    lines = read_lines()
    starts = list_sections(len(lines), PASSAGES)
    training = [a + b for b in TRAINING for a in starts]
    rng = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(training), generator=rng).tolist()
    return (
        [cut_passage(tokenizer, lines, training[i], LENGTH) for i in order],
        [cut_passage(tokenizer, lines, i, LENGTH) for i in starts],
    )


def measure_variants(
    model: ModernDecoder,
    passages: Sequence[Int[Tensor, "T"]],
    indexers: Sequence[LightningIndexer],
) -> list[dict]:
    """Return a row for each way to select keys."""
    variants = list_indexed_variants(indexers)
    seen = [
        observe_weights(model, ids, [v for _, v in variants])["kept_weight"]
        for ids in passages
    ]
    return [
        {"name": variant.name, "budget": budget}
        | variant.settings
        | measure_selection(model, passages, variant.select)
        | {"kept_weight": [one[i] for one in seen]}
        for i, (budget, variant) in enumerate(variants)
    ]


@recorded(on_cpu=True, seeds=[SEED], **SMOLLM2)
def smollm2_indexer() -> dict:
    """Record losses with the keys that trained indexers select.

    Each layer gets a lightning indexer that learns the mean weights of the layer's
    heads, while the model stays as it is. It then selects the keys of all heads,
    in all layers at once, on passages that it was not trained on. The second stage
    of DeepSeek's training, in which model and indexer adapt to the selection, is
    left out.

    Source: DeepSeek-AI (2025), DeepSeek-V3.2-Exp, section 2.1 (the dense warm-up),
        https://github.com/deepseek-ai/DeepSeek-V3.2-Exp. Departures: the smaller
        indexer, Adam with a linear decay of the learning rate, and 25,000
        symbols of text instead of 2.1 billion.
    """
    model, tokenizer = load_model(SelectedAttention)
    training, measured = cut_passages(tokenizer)
    indexers = build_indexers(model, SEED)
    divergence = train_indexers(model, indexers, training, SEED)
    return {
        "variants": measure_variants(model, measured, indexers),
        "training_divergence": divergence,
        "training_symbols": len(training) * LENGTH,
        "indexer": {"heads": INDEXER_HEADS, "size": INDEXER_SIZE, "rate": INDEXER_RATE},
        "parameters": sum(map(count_parameters, indexers)),
        "model_parameters": count_parameters(model),
    }


MAP_LENGTH, MAP_SECTION = 64, 5


@torch.no_grad()
def compute_maps(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> Float[Tensor, "L H T T"]:
    """Return the weights of every head."""
    found: list[Tensor] = []

    def look(layer: Layer) -> Tensor:
        found.append(layer.compute_weights()[0])
        return layer.causal

    set_selection(model, look)
    model(ids[None])
    return torch.stack(found)


def describe_heads(
    maps: Float[Tensor, "L H T T"], ids: Int[Tensor, "T"]
) -> dict[str, Float[Tensor, "L H"]]:
    """Return, for each kind of head, how much each head is of this kind.

    Returns:
        Mean weight over the queries of the second half: on the first symbol
        ("sink"); on the symbol before ("previous"); on the four symbols up to
        the query ("local"); on symbols that follow an earlier occurrence of
        the query's symbol ("induction"); on keys, other than the first, at
        least 16 positions back ("far"); and the weight that is neither on the
        first symbol nor on the largest other key ("spread").
    """
    T = len(ids)
    i = torch.arange(T)
    back = i[:, None] - i
    after = shift_symbols(ids) == ids[:, None]
    late, rest = slice(T // 2, None), maps.clone()
    rest[..., 0] = 0.0
    masks = {
        "sink": (i == 0).expand(T, T),
        "previous": back == 1,
        "local": (back >= 0) & (back < 4),
        "induction": after & (back > 0) & (i > 0),
        "far": (back >= 16) & (i > 0),
    }
    found = {
        name: (maps * mask).sum(-1)[..., late].mean(-1) for name, mask in masks.items()
    }
    spread = rest.sum(-1) - rest.amax(-1)
    return found | {"spread": spread[..., late].mean(-1)}


def shift_symbols(ids: Int[Tensor, "T"]) -> Int[Tensor, "T"]:
    """Return, at each position, the symbol before it, or -1."""
    return torch.cat([ids.new_tensor([-1]), ids[:-1]])


def to_thousandths(weights: Float[Tensor, "T T"]) -> list[list[int]]:
    """Return each query's weights on the keys up to its own, times 1,000."""
    rounded = (weights * 1000).round().int().tolist()
    return [row[: t + 1] for t, row in enumerate(rounded)]


def choose_heads(
    kinds: dict[str, Float[Tensor, "L H"]], counts: Mapping[str, int] | None = None
) -> list[dict]:
    """Return the most typical heads of each kind, none of them twice."""
    chosen: list[dict] = []
    for kind, amount in kinds.items():
        order = amount.flatten().argsort(descending=True).tolist()
        heads = [divmod(n, amount.shape[1]) for n in order]
        taken = {(x["layer"], x["head"]) for x in chosen}
        free = [x for x in heads if x not in taken]
        for layer, head in free[: (counts or {}).get(kind, 1)]:
            share = round(float(amount[layer, head]), 3)
            chosen.append({"layer": layer, "head": head, "kind": kind, "share": share})
    return chosen


@recorded(on_cpu=True, seeds=[], **SMOLLM2)
def smollm2_map() -> dict:
    """Record the weights of six different heads, and the mean of all heads."""
    model, tokenizer = load_model(SelectedAttention)
    lines = read_lines()
    start = list_sections(len(lines), PASSAGES)[MAP_SECTION] + MAPS
    ids = cut_passage(tokenizer, lines, start, MAP_LENGTH)
    maps = compute_maps(model, ids)
    heads = choose_heads(describe_heads(maps, ids))
    for one in heads:
        one["thousandths"] = to_thousandths(maps[one["layer"], one["head"]])
    mean = {
        "layer": None,
        "head": None,
        "kind": "mean",
        "share": None,
        "thousandths": to_thousandths(maps.mean(dim=(0, 1))),
    }
    return {
        "examples": [
            {
                "title": f"sentences of LibreOffice's help, from line {start}",
                "tokens": [tokenizer.decode([i]) for i in ids.tolist()],
                "heads": [*heads, mean],
            }
        ]
    }
