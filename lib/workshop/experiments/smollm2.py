"""SmolLM2-135M-Instruct: the inputs of its studies, and attention to selected keys.

Passages are English sentences of LibreOffice's help, in the order of its pages, one a
line (`attnbook.data.libreoffice`). The training split is used, because its pages are
nearly complete; whether SmolLM2 has seen these pages is not known.

A sequence of repeated random tokens is the symbol <|endoftext|>, N different
random tokens, and the same N again: only the first copy can tell what comes
next in the second. N takes three values, so that no fixed distance leads to the
first copy in all sequences.

Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737; repeated random
    tokens: Olsson et al. (2022), https://arxiv.org/abs/2209.11895
Axes: B batch, L layers, H heads, G groups, T positions, R the queries among them that
    are looked at, C model width, V symbols
"""

from collections.abc import Callable, Mapping, Sequence
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
from attnbook.data import libreoffice
from attnbook.diagnose.heads import mark_induction
from attnbook.models.devices import use_seed
from attnbook.models.hooks import Head, record_weights
from attnbook.models.modern_decoder import Cache, ModernDecoder, RotaryAttention
from attnbook.models.pretrained import (
    PACKAGE,
    SHA256,
    load_smollm2,
    load_smollm2_tokenizer,
)
from workshop.experiments.record import recorded

# What a record says of the model.
SMOLLM2 = {
    "model": f"SmolLM2-135M-Instruct, Q4_1, from {PACKAGE}, Apache-2.0",
    "sha256": SHA256,
}
LENGTH = 1024  # symbols of a passage
PASSAGES = 12
# Lines between the start of a section, whose first passage is measured, and
# its other passages: two to train on, and one for the attention maps.
TRAINING = (350, 750)
MAPS = 1200


def load_model(attention: type[RotaryAttention] = RotaryAttention):
    """Return the model and its tokenizer."""
    return load_smollm2(attention), load_smollm2_tokenizer()


def read_lines() -> list[str]:
    return [pair.source[0] for pair in libreoffice.load_text().train]


def cut_passages(
    tokenizer, count: int, length: int, after: int = 0
) -> list[Int[Tensor, "T"]]:
    """Return the beginnings of the text some lines after the start of each section."""
    lines = read_lines()
    starts = [i * len(lines) // count + after for i in range(count)]
    # No line has fewer than 3 words, so `length` symbols need fewer lines.
    texts = ["\n".join(lines[i : i + length // 3 + 1]) for i in starts]
    return [torch.tensor(tokenizer.encode(text).ids[:length]) for text in texts]


START = 0  # <|endoftext|>, which separates the texts in pre-training
SPECIAL = 17  # the first symbols, which are not text
LENGTHS = (24, 32, 40)  # N
EACH = 4  # sequences of each length


def draw_tokens(seed: int, count: int, symbols: int) -> Int[Tensor, " N"]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(symbols - SPECIAL, generator=generator)
    return order[:count] + SPECIAL


def draw_copies(
    seed: int, count: int, symbols: int, repeated: bool = True
) -> Int[Tensor, " T"]:
    """Return two copies, or the first one and other random tokens."""
    tokens = draw_tokens(seed, 2 * count, symbols)
    if repeated:
        tokens = tokens[:count].repeat(2)
    return F.pad(tokens, (1, 0), value=START)


def draw_batches(
    seed: int, symbols: int, each: int, repeated: bool = True
) -> list[Int[Tensor, "B T"]]:
    """Return one batch for each length; sequence i has the seed `seed` + i."""
    return [
        torch.stack(
            [
                draw_copies(seed + n * each + i, N, symbols, repeated)
                for i in range(each)
            ]
        )
        for n, N in enumerate(LENGTHS)
    ]


def cut_texts(tokenizer, count: int, length: int) -> Int[Tensor, "B T"]:
    """Return ordinary text: the start symbol and the first tokens of sections."""
    found = torch.stack(cut_passages(tokenizer, count, length - 1))
    return F.pad(found, (1, 0), value=START)


@torch.no_grad()
def collect_weights(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L B H T T"]:
    attentions = [block.attention for block in model.blocks]
    with record_weights(attentions) as weights:
        list_block_inputs(model, ids)
    return torch.stack(weights)


@torch.no_grad()
def list_block_inputs(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> list[Float[Tensor, "B T C"]]:
    """Return the residual stream before each block, and after the last."""
    found = [model.embed(ids)]
    for block in model.blocks:
        found.append(block(found[-1])[0])
    return found


@torch.no_grad()
def compute_logits(
    model: ModernDecoder,
    x: Float[Tensor, "B T C"],
    layer: int = 0,
    rows: slice = slice(None),
) -> Float[Tensor, "B _ V"]:
    """Return logits of some positions from the input of a block."""
    for block in model.blocks[layer:]:
        x, _ = block(x)
    table = model.embed.get_parameter("table.weight")
    return model.norm(x[:, rows]) @ table.T


def measure_copying(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    x: Float[Tensor, "B T C"] | None = None,
    layer: int = 0,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return loss (nats) and accuracy on the second copy of each sequence."""
    x = model.embed(ids) if x is None else x
    half = (ids.shape[1] - 1) // 2
    logits = compute_logits(model, x, layer, slice(half + 1, -1))
    targets = ids[:, half + 2 :]
    loss = F.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)
    return loss, (logits.argmax(-1) == targets).float().mean(dim=1)


def measure_text(model: ModernDecoder, ids: Int[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Return the loss (nats a token) of each text, its first token included."""
    logits = compute_logits(model, model.embed(ids), rows=slice(0, -1))
    return F.cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(dim=1)


PAGE = 16  # keys of a block, in which a GPU would read them


class Layer(NamedTuple):
    """What a selection can use of a layer."""

    number: int
    x: Tensor
    query: Tensor
    key: Tensor
    causal: Tensor

    def compute_weights(self) -> Float[Tensor, "B H T T"]:
        scores = grouped_scores(self.query, self.key)
        return scores.masked_fill_(~self.causal, -torch.inf).softmax(-1)


Selection = Callable[[Layer], Tensor]


def select_all(layer: Layer) -> Bool[Tensor, "T T"]:
    return layer.causal


class SelectedAttention(RotaryAttention):
    """Rotary attention in which a function selects the keys of each query."""

    select: Selection = staticmethod(select_all)
    index = 0
    counts: Tensor | None = None

    def decode(
        self,
        x: Float[Tensor, "B T C"],
        cache: Cache | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Cache]:
        query, key, value = self.project(x, x)
        causal = causal_mask(x.shape[1], x.shape[1], x.device)
        kept = self.select(Layer(self.index, x, query, key, causal)) & causal
        shared = [
            y.repeat_interleave(self.heads // self.groups, dim=1) for y in (key, value)
        ]
        output = F.scaled_dot_product_attention(query, *shared, attn_mask=kept)
        kept = kept.expand(len(x), self.heads, *causal.shape)
        self.counts = count_keys(kept, self.groups)
        return self.output(merge_heads(output)), (key, value)


def count_keys(kept: Bool[Tensor, "B H T T"], groups: int) -> Float[Tensor, "2"]:
    """Return the mean number of keys that a query of the second half keeps.

    The first number is that of a head, the second that of the different keys of all
    heads that share a key-value head.
    """
    late = kept[:, :, kept.shape[2] // 2 :]
    union = late.unflatten(1, (groups, -1)).any(dim=2)
    return torch.stack([x.sum(-1, dtype=torch.float).mean() for x in (late, union)])


def set_selection(model: ModernDecoder, select: Selection) -> None:
    for index, block in enumerate(model.blocks):
        block.attention.select, block.attention.index = select, index


@torch.no_grad()
def measure_selection(
    model: ModernDecoder, passages: Sequence[Int[Tensor, "T"]], select: Selection
) -> dict:
    """Return the loss of each passage, and how many keys a query keeps."""
    set_selection(model, select)
    losses, counts = [], []
    for ids in passages:
        half, x = len(ids) // 2, model.embed(ids[None])
        logits = compute_logits(model, x, rows=slice(half, -1))[0]
        found = F.cross_entropy(logits, ids[half + 1 :], reduction="none")
        losses.append(float(found.mean()))
        counts.extend(block.attention.counts for block in model.blocks)
    mean = torch.stack(counts).mean(dim=0).tolist()
    return {"losses": losses} | dict(zip(("keys", "group_keys"), mean, strict=True))


def measure_variants(
    model: ModernDecoder,
    passages: Sequence[Int[Tensor, "T"]],
    variants: Mapping[str, Selection],
) -> list[dict]:
    return [
        {"name": name} | measure_selection(model, passages, select)
        for name, select in variants.items()
    ]


EVERY, SHARE = 4, 0.9  # of the queries of the second half, and of their weight


def keep_window(size: int, sinks: int, length: int) -> Selection:
    mask = masks.window(length, length, size) | masks.sinks(length, length, sinks)
    return lambda layer: mask


def keep_top(count: int) -> Selection:
    """Return an oracle: the keys with the largest weights of each head."""
    return lambda layer: select_top_keys(layer.compute_weights(), layer.causal, count)


def keep_shared_top(count: int) -> Selection:
    """Return an oracle for all heads: the largest mean weights."""

    def select(layer: Layer) -> Bool[Tensor, "B 1 T T"]:
        mean = layer.compute_weights().mean(dim=1, keepdim=True)
        return select_top_keys(mean, layer.causal, count)

    return select


def keep_top_blocks(count: int) -> Selection:
    """Return an oracle: the blocks with the largest weights of each head."""

    def select(layer: Layer) -> Bool[Tensor, "B H T T"]:
        blocks = sum_over_blocks(layer.compute_weights(), PAGE)
        return select_top_blocks(blocks, layer.causal, count, PAGE)

    return select


def keep_mean_blocks(count: int, size: int = PAGE, first: int = 0) -> Selection:
    """Return the blocks whose mean key has the largest product with a query.

    With `first` 1, the first block is always one of them.
    """

    def select(layer: Layer) -> Bool[Tensor, "B H T T"]:
        scores = score_mean_keys(layer.query, layer.key, size)
        scores[..., :first] = torch.inf
        return select_top_blocks(scores, layer.causal, count, size)

    return select


def list_variants() -> dict[str, Selection]:
    return {
        "full": select_all,
        **{
            f"window {size}, {name}": keep_window(size, count, LENGTH)
            for size in (64, 256)
            for count, name in ((0, "0 sinks"), (1, "1 sink"), (4, "4 sinks"))
        },
        **{f"oracle top {count}": keep_top(count) for count in (8, 32, 128)},
        f"oracle 8 blocks of {PAGE}": keep_top_blocks(8),
        f"mean keys, 8 blocks of {PAGE}": keep_mean_blocks(8),
        f"mean keys, 8 blocks of {PAGE}, the first among them": keep_mean_blocks(
            8, first=1
        ),
    }


@torch.no_grad()
def count_keys_for_most_weight(model: ModernDecoder, ids: Int[Tensor, "T"]) -> dict:
    """Return, by layer and head, how few keys carry 90 % of a query's weight.

    It is the median over every fourth query of the second half; and the same of the
    other keys and their weights, without the first key.
    """
    rows = torch.arange(len(ids) // 2, len(ids), EVERY)
    found: dict[str, list] = {"needed_keys": [], "needed_keys_without_first": []}

    def look(layer: Layer) -> Tensor:
        weights = layer.compute_weights()[:, :, rows]
        rest = weights[..., 1:] / weights[..., 1:].sum(dim=-1, keepdim=True)
        for table, x in zip(found.values(), (weights, rest), strict=True):
            ordered = x.sort(dim=-1, descending=True).values
            needed = (ordered.cumsum(dim=-1) < SHARE).sum(dim=-1) + 1
            table.append(needed[0].median(-1).values.tolist())
        return layer.causal

    set_selection(model, look)
    list_block_inputs(model, ids[None])
    return found


@recorded(seeds=[], **SMOLLM2)
def smollm2_keys() -> dict:
    """Record losses with some of the keys only, and how many carry the weight.

    The model stays as it was trained; keys are left out in all layers at once, and
    positions stay those of the text. An oracle computes all weights of a layer,
    keeps the largest, and attends to their keys alone.

    Source: windows with and without the first symbols: Xiao et al. (2023),
        https://arxiv.org/abs/2309.17453; blocks by their mean key: Lu et al.
        (2025), https://arxiv.org/abs/2502.13189
    """
    model, tokenizer = load_model(SelectedAttention)
    passages = cut_passages(tokenizer, PASSAGES, LENGTH)
    seen = [count_keys_for_most_weight(model, ids) for ids in passages]
    return {
        "variants": measure_variants(model, passages, list_variants()),
        "length": LENGTH,
        **{name: [one[name] for one in seen] for name in seen[0]},
    }


INDEXER_HEADS, INDEXER_SIZE = 4, 32
BATCHES = 12  # of the queries of a passage: one step of the optimizer each
INDEXER_RATE = 3e-3
CHUNK = 256  # queries whose keys are selected at once
SEED = 0


def train_indexers(
    model: ModernDecoder, passages: Sequence[Int[Tensor, "T"]], seed: int
) -> list[LightningIndexer]:
    """Train an indexer a layer once on each passage, its queries in random batches."""
    config, rng = model.config, torch.Generator().manual_seed(seed)
    sizes = config.width, INDEXER_HEADS, INDEXER_SIZE, config.base
    with use_seed(seed):
        indexers = [LightningIndexer(*sizes) for _ in range(config.blocks)]
    optimizers = [torch.optim.Adam(x.parameters(), INDEXER_RATE) for x in indexers]

    def learn(layer: Layer) -> Bool[Tensor, "T T"]:
        weights, optimizer = layer.compute_weights(), optimizers[layer.number]
        order = torch.randperm(len(layer.causal), generator=rng)
        for rows in order.chunk(BATCHES):
            with torch.enable_grad():
                scores = indexers[layer.number](layer.x, rows)
                loss = compute_indexer_loss(
                    scores, weights[:, :, rows], layer.causal[rows]
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return layer.causal

    set_selection(model, learn)
    for i, ids in enumerate(passages):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = INDEXER_RATE * (1 - i / len(passages))
        list_block_inputs(model, ids[None])
    return indexers


def keep_indexed(indexers: Sequence[LightningIndexer], count: int) -> Selection:
    def select(layer: Layer) -> Bool[Tensor, "B 1 T T"]:
        T, parts = layer.x.shape[1], []
        # Many scores are 0: which of these keys are kept depends on the chunks.
        for rows in torch.arange(T).split(CHUNK):
            end = int(rows[-1]) + 1
            scores = indexers[layer.number](layer.x[:, :end], rows)
            chosen = select_top_keys(scores, layer.causal[rows, :end], count)
            parts.append(F.pad(chosen, (0, T - end)))
        return torch.cat(parts, dim=1)[:, None]

    return select


@recorded(seeds=[SEED], **SMOLLM2)
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
    training = [
        x for a in TRAINING for x in cut_passages(tokenizer, PASSAGES, LENGTH, a)
    ]
    rng = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(training), generator=rng).tolist()
    indexers = train_indexers(model, [training[i] for i in order], SEED)
    measured = cut_passages(tokenizer, PASSAGES, LENGTH)
    variants = {
        "shared oracle top 32": keep_shared_top(32),
        "indexer top 32": keep_indexed(indexers, 32),
        f"mean keys, 2 blocks of {PAGE}": keep_mean_blocks(2),
        "window 31, 1 sink": keep_window(31, 1, LENGTH),
        "shared oracle top 128": keep_shared_top(128),
        "indexer top 128": keep_indexed(indexers, 128),
        "window 127, 1 sink": keep_window(127, 1, LENGTH),
    }
    return {"variants": measure_variants(model, measured, variants)}


MAP_LENGTH, MAP_SECTION = 64, 5


def describe_heads(
    maps: Float[Tensor, "L H T T"], ids: Int[Tensor, "T"]
) -> dict[str, Float[Tensor, "L H"]]:
    """Return, for each kind of head, how much each head is of this kind.

    It is the mean weight, over the queries of the second half, on the keys that are
    marked; "spread" is the weight neither on the first nor on the largest other key.
    """
    T = len(ids)
    i = torch.arange(T)
    back, late = i[:, None] - i, slice(T // 2, None)
    marked = {
        "sink": (i == 0).expand(T, T),
        "previous": back == 1,
        "local": (back >= 0) & (back < 4),
        "induction": mark_induction(ids) & (back > 0),
        "far": (back >= 16) & (i > 0),
    }
    found = {name: (maps * x).sum(-1)[..., late].mean(-1) for name, x in marked.items()}
    rest = maps[..., 1:]
    spread = rest.sum(-1) - rest.amax(-1)
    return found | {"spread": spread[..., late].mean(-1)}


def round_causal(weights: Float[Tensor, "T T"], factor: int) -> list[list[int]]:
    """Return each query's weights on the keys up to its own, times the factor."""
    rounded = (weights * factor).round().int().tolist()
    return [row[: t + 1] for t, row in enumerate(rounded)]


def rank_heads(scores: Float[Tensor, "L H"]) -> list[Head]:
    order = scores.flatten().argsort(descending=True).tolist()
    return [divmod(n, scores.shape[1]) for n in order]


def choose_heads(
    kinds: dict[str, Float[Tensor, "L H"]], counts: Mapping[str, int] | None = None
) -> list[dict]:
    """Return the most typical heads of each kind, none of them twice."""
    chosen: list[dict] = []
    for kind, amount in kinds.items():
        taken = {(x["layer"], x["head"]) for x in chosen}
        free = [x for x in rank_heads(amount) if x not in taken]
        for layer, head in free[: (counts or {}).get(kind, 1)]:
            chosen.append({"layer": layer, "head": head, "kind": kind})
    return chosen


@recorded(seeds=[], **SMOLLM2)
def smollm2_map() -> dict:
    """Record the weights of six different heads, and the mean of all heads."""
    model, tokenizer = load_model()
    start = MAP_SECTION * len(read_lines()) // PASSAGES + MAPS
    ids = cut_passages(tokenizer, PASSAGES, MAP_LENGTH, MAPS)[MAP_SECTION]
    maps = collect_weights(model, ids[None])[:, 0]
    heads = choose_heads(describe_heads(maps, ids))
    for one in heads:
        one["thousandths"] = round_causal(maps[one["layer"], one["head"]], 1000)
    mean = {"layer": None, "head": None, "kind": "mean"}
    mean["thousandths"] = round_causal(maps.mean(dim=(0, 1)), 1000)
    example = {
        "title": f"sentences of LibreOffice's help, from line {start}",
        "tokens": [tokenizer.decode([i]) for i in ids.tolist()],
        "heads": [*heads, mean],
    }
    return {"examples": [example]}
