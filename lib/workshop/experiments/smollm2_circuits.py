"""What SmolLM2's heads match and write, and its attention sinks.

Axes: L layers, B sequences, H heads, G groups, T positions, P pairs of query and key,
    R distances, D width of a head, V symbols, N symbols that are looked at, C model
    width
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.multi_head import split_heads
from attnbook.models.hooks import Head
from attnbook.models.modern_decoder import CachedBlock, ModernDecoder, RotaryAttention
from attnbook.positions.rotary import rotate
from attnbook.records import read_record
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import (
    SMOLLM2,
    collect_weights,
    cut_texts,
    draw_repeated,
    draw_tokens,
    list_block_inputs,
    load_model,
    measure_text,
)
from workshop.experiments.smollm2_heads import rank_heads, tabulate

CIRCUIT_SEED, SEQUENCES, COUNT = 600, 6, 40
REACH = 64  # distances 0 to 63
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


def split_variance(scores: Float[Tensor, "P R"]) -> dict[str, float]:
    """Return the shares of the scores' variance of distance and content.

    Returns:
        `distance`: the variance of the mean score of each distance; `content`:
        that of the mean of each pair; `both`: the rest, an effect of distance
        that differs between pairs. They sum to 1.
    """
    whole = scores.var(correction=0)
    distance = scores.mean(dim=0).var(correction=0) / whole
    content = scores.mean(dim=1).var(correction=0) / whole
    return {
        "distance": float(distance),
        "content": float(content),
        "both": float(1 - distance - content),
    }


def pair_up(
    query: Float[Tensor, "B T D"], key: Float[Tensor, "B T D"], count: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs of contents on repeated random tokens.

    Returns:
        "match": queries of the second copy with the keys that follow the same
        token in the first; "other": the same queries with keys of the first
        copy that follow another token, each moved by a random number of
        places.
    """
    places = torch.arange(1, count)  # in the first copy, from 1
    queries = query[:, count + places]
    keys = key[:, 1 + places]
    moved = torch.stack([keys[b].roll(5 + 3 * b, dims=0) for b in range(len(keys))])
    flat = [x.flatten(0, 1) for x in (queries, keys, moved)]
    return {"match": (flat[0], flat[1]), "other": (flat[0], flat[2])}


def describe_match(
    model: ModernDecoder, inputs: list[Float[Tensor, "B T C"]], head: Head, count: int
) -> dict:
    """Return a head's scores by distance, of matching and of other pairs.

    Returns:
        For each kind of pairs `mean` and `deviation` (R) over the pairs, and
        the shares of the variance.
    """
    layer, number = head
    block = model.blocks[layer]
    query, key = project_unrotated(block, inputs[layer])
    pairs = pair_up(query[:, number], key[:, number], count)
    found: dict = {"head": list(head)}
    for name, (queries, keys) in pairs.items():
        scores = score_at_distances(queries, keys, block.attention.base, REACH)
        found[name] = {
            "mean": tabulate(scores.mean(dim=0), 3),
            "deviation": tabulate(scores.std(dim=0), 3),
            "variance": split_variance(scores),
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
    """Return how well the OV circuit of each head names the token it reads.

    Returns:
        Tables (L, H): `top`, the share of tokens whose own logit is raised
        most of all N; `rank`, the median share of the other tokens whose logit
        is raised more.
    """
    table = model.embed.get_parameter("table.weight")[ids] * model.norm.weight
    top, rank = [], []
    for block, inputs in zip(model.blocks, x, strict=True):
        normed = block.get_submodule("norms.0")(inputs)
        for head in range(block.attention.heads):
            written = apply_output_value(block.attention, normed, head)
            logits = written @ table.T
            above = (logits > logits.diagonal()[:, None]).sum(dim=1)
            top.append((above == 0).float().mean())
            rank.append((above / (len(ids) - 1)).median())
    shape = len(model.blocks), model.config.heads
    return {
        "top": tabulate(torch.stack(top).reshape(shape)),
        "rank": tabulate(torch.stack(rank).reshape(shape)),
    }


@torch.no_grad()
def list_token_inputs(
    model: ModernDecoder, seed: int, length: int = 50
) -> tuple[list[Float[Tensor, "N C"]], Int[Tensor, " N"]]:
    """Return the inputs of each block for different tokens, and the tokens.

    They stand in sequences of random tokens, none of them repeated.
    """
    ids = draw_tokens(seed, SYMBOLS, model.config.symbols)
    rows = ids.reshape(-1, length)
    start = rows.new_zeros(len(rows), 1)
    inputs = list_block_inputs(model, torch.cat([start, rows], dim=1))
    return [x[:, 1:].flatten(0, 1) for x in inputs[:-1]], ids


@recorded(
    on_cpu=True, seeds=[*range(CIRCUIT_SEED, CIRCUIT_SEED + SEQUENCES)], **SMOLLM2
)
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
            "symbols": SYMBOLS,
        }


SINK_TEXTS, SINK_LENGTH, SINK_SEED = 6, 128, 500
OTHER = 8  # the position that is changed in the control

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def leave(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and values as they are."""
    return weights, value


def zero_value(position: int) -> Change:
    """Return a change: to later queries, the value at a position is zero.

    The other weights stay, so that later outputs lose this contribution. The
    position's own output does not change.
    """

    def change(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.clone()
        weights[:, :, position + 1 :, position] = 0.0
        return weights, value

    return change


def mask_out(position: int) -> Change:
    """Return a change: later queries cannot attend to a position."""

    def change(weights: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        weights = weights.clone()
        weights[:, :, position + 1 :, position] = 0.0
        return weights / weights.sum(dim=-1, keepdim=True), value

    return change


class ChangedAttention(RotaryAttention):
    """Rotary attention in which a function changes weights and values.

    Attributes:
        change: from weights (B, H, T, T) and values (B, G, T, D) to others;
            set from outside.
    """

    change: Change = staticmethod(leave)

    def combine(
        self, weights: Float[Tensor, "B H T S"], value: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T D"]:
        """Return the averages of the changed values."""
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
def measure_change(
    model: ModernDecoder, ids: Int[Tensor, "B T"], change: Change
) -> list[float]:
    """Return the loss of each text with a change in all layers."""
    with change_layers(model, change):
        return measure_text(model, ids).tolist()


@torch.no_grad()
def describe_position(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    position: int = 0,
    change: Change = leave,
) -> dict:
    """Return what a position looks like beside the later ones.

    Returns:
        `stream` (L): norm of the residual stream before each block there,
        divided by the median of the later positions; `value` (L, G): the same
        of the values; both are means over texts.
    """
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


def measure_sinks(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L H"]:
    """Return each head's mean weight on position 0 of the later queries."""
    weights = collect_weights(model, ids)
    return weights[..., 1:, 0].mean(dim=(1, 3))


def precede(ids: Int[Tensor, "B T"], symbols: int) -> dict[str, Tensor]:
    """Return the texts after the start symbol, a random token, and nothing."""
    first = torch.cat([draw_tokens(SINK_SEED + b, 1, symbols) for b in range(len(ids))])
    return {
        "start symbol": ids,
        "random token": torch.cat([first[:, None], ids[:, 1:]], dim=1),
        "nothing": ids[:, 1:],
    }


@recorded(on_cpu=True, seeds=[*range(SINK_SEED, SINK_SEED + SINK_TEXTS)], **SMOLLM2)
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
        "mask 0": mask_out(0),
        f"value {OTHER}": zero_value(OTHER),
        f"mask {OTHER}": mask_out(OTHER),
    }
    before = precede(texts, model.config.symbols)
    return {
        "weights": {
            name: tabulate(measure_sinks(model, ids)) for name, ids in before.items()
        },
        "position 0": describe_position(model, texts),
        "position 1": describe_position(model, texts, 1),
        "position 1, mask 0": describe_position(model, texts, 1, mask_out(0)),
        f"position {OTHER}": describe_position(model, texts, OTHER),
        "losses": {
            name: measure_change(model, texts, change)
            for name, change in changes.items()
        },
        "texts": SINK_TEXTS,
        "length": SINK_LENGTH,
    }
