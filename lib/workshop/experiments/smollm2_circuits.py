"""QK and OV circuits of SmolLM2's heads: what they match, what they write.

QK: with rotary embeddings the score of a query and a key depends on their
contents and on their distance. Contents are taken from real sequences and
placed at distances of our choice. OV: what a head adds to the logits if it
attends to one token alone; copying heads raise the logit of that token.

Source: Elhage et al. (2021), https://transformer-circuits.pub/2021/framework/;
    rotary embeddings: Su et al. (2021), section 3.2,
    https://arxiv.org/abs/2104.09864
Axes: L layers, B sequences, H heads, T positions, P pairs of query and key,
    R distances, D width of a head, V symbols, N symbols that are looked at,
    C model width
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.multi_head import split_heads
from attnbook.models.head_edits import Head
from attnbook.models.modern_block import CachedBlock, RotaryAttention
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2
from attnbook.positions.rotary import rotate
from attnbook.records import read_record
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_ablation import rank_heads
from workshop.experiments.smollm2_heads import tabulate
from workshop.experiments.smollm2_inputs import (
    draw_repeated,
    draw_tokens,
    list_block_inputs,
)
from workshop.experiments.smollm2_text import SMOLLM2

SEED, SEQUENCES, COUNT = 600, 6, 40
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
    query: Float[Tensor, "P D"],
    key: Float[Tensor, "P D"],
    base: float,
    reach: int = REACH,
) -> Float[Tensor, "P R"]:
    """Return the scores of pairs, the query 0 to `reach - 1` after the key.

    Args:
        query: contents of queries, before the rotation.
        key: contents of keys, likewise.
        base: of the rotary frequencies.
        reach: R.
    """
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
    model: ModernDecoder,
    inputs: list[Float[Tensor, "B T C"]],
    head: Head,
    count: int = COUNT,
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
        scores = score_at_distances(queries, keys, block.attention.base)
        found[name] = {
            "mean": tabulate(scores.mean(dim=0), 3),
            "deviation": tabulate(scores.std(dim=0), 3),
            "variance": split_variance(scores),
        }
    return found


def apply_output_value(
    attention: RotaryAttention, x: Float[Tensor, "N C"], head: int
) -> Float[Tensor, "N C"]:
    """Return what a head adds to the residual stream if it attends to x alone.

    Args:
        attention: the layer.
        x: normalized inputs.
        head: its number.
    """
    D = x.shape[1] // attention.heads
    group = head // (attention.heads // attention.groups)
    W_value = attention.value.weight[group * D : (group + 1) * D]
    W_output = attention.output.weight[:, head * D : (head + 1) * D]
    return x @ W_value.T @ W_output.T


def measure_copying_heads(
    model: ModernDecoder,
    x: list[Float[Tensor, "N C"]],
    ids: Int[Tensor, " N"],
) -> dict:
    """Return how well the OV circuit of each head names the token it reads.

    Args:
        model: as it is.
        x: for each layer the inputs of the block for these tokens.
        ids: different tokens: the logits of these are compared.

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


@experiment(on_cpu=True)
@recorded(
    seeds=[*range(SEED, SEED + SEQUENCES)],
    **SMOLLM2,
)
def smollm2_circuits() -> dict:
    """Record scores by distance, and what the OV circuits copy."""
    model = load_smollm2()
    symbols = model.config.symbols
    ids = torch.stack(
        [draw_repeated(SEED + i, COUNT, symbols) for i in range(SEQUENCES)]
    )
    inputs = list_block_inputs(model, ids)
    scores = read_record("smollm2_heads")["results"]["scores"]
    curves = []
    with torch.no_grad():
        for kind in ("previous", "induction"):
            for head in rank_heads(torch.tensor(scores[kind]))[:SHOWN]:
                found = describe_match(model, inputs, head)
                curves.append({"kind": kind} | found)
        streams, tokens = list_token_inputs(model, SEED)
        embedded = [model.embed(tokens[None])[0]] * len(model.blocks)
        return {
            "curves": curves,
            "stream": measure_copying_heads(model, streams, tokens),
            "embedding": measure_copying_heads(model, embedded, tokens),
            "symbols": SYMBOLS,
        }
