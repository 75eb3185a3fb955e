"""Controlled inputs for the heads of SmolLM2, and running it in parts.

A sequence of repeated random tokens is the symbol <|endoftext|>, N different
random tokens, and the same N again: only the first copy can tell what comes
next in the second. N takes three values, so that no fixed distance leads to the
first copy in all sequences.

Source: repeated random tokens: Olsson et al. (2022),
    https://arxiv.org/abs/2209.11895
Axes: B batch, L layers, H heads, T positions, C model width, V symbols
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.models.attention_maps import record_weights
from attnbook.models.modern_decoder import ModernDecoder
from workshop.experiments.smollm2_text import list_sections, read_lines

START = 0  # <|endoftext|>, which separates the texts in pre-training
SPECIAL = 17  # the first symbols, which are not text
LENGTHS = (24, 32, 40)  # N
EACH = 4  # sequences of each length


def draw_tokens(seed: int, count: int, symbols: int) -> Int[Tensor, " N"]:
    """Return different random symbols, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(symbols - SPECIAL, generator=generator)
    return order[:count] + SPECIAL


def draw_repeated(seed: int, count: int, symbols: int) -> Int[Tensor, " T"]:
    """Return the start symbol and the same random tokens twice."""
    tokens = draw_tokens(seed, count, symbols)
    return torch.cat([torch.tensor([START]), tokens, tokens])


def draw_unrepeated(seed: int, count: int, symbols: int) -> Int[Tensor, " T"]:
    """Return the same first copy, followed by other random tokens.

    All tokens differ: it is the control of `draw_repeated`.
    """
    tokens = draw_tokens(seed, 2 * count, symbols)
    return torch.cat([torch.tensor([START]), tokens])


def draw_batches(
    seed: int,
    symbols: int,
    each: int = EACH,
    lengths: Sequence[int] = LENGTHS,
    draw=draw_repeated,
) -> list[Int[Tensor, "B T"]]:
    """Return one batch for each length; sequence i has the seed `seed` + i."""
    return [
        torch.stack([draw(seed + n * each + i, N, symbols) for i in range(each)])
        for n, N in enumerate(lengths)
    ]


def cut_texts(tokenizer, count: int, length: int) -> Int[Tensor, "B T"]:
    """Return ordinary text: the start symbol and the first tokens of sections.

    Args:
        tokenizer: of SmolLM2.
        count: B; the sections are LibreOffice's help in equal parts.
        length: T, the start symbol among them.
    """
    lines, found = read_lines(), []
    for start in list_sections(len(lines), count):
        text = "\n".join(lines[start : start + length // 3 + 1])
        found.append([START, *tokenizer.encode(text).ids][:length])
    return torch.tensor(found)


@torch.no_grad()
def collect_weights(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L B H T T"]:
    """Return the weights of all heads."""
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
    """Return logits of some positions from the input of a block.

    Args:
        model: as it is, or with edited heads.
        x: the residual stream before a block.
        layer: the number of this block.
        rows: the positions.
    """
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
    """Return loss (nats) and accuracy on the second copy of each sequence.

    Its first token cannot be predicted and does not count.

    Args:
        model: as it is, or with edited heads.
        ids: repeated random tokens.
        x: the input of a block, if it is known; the embeddings unless given.
        layer: the number of this block.
    """
    x = model.embed(ids) if x is None else x
    half = (ids.shape[1] - 1) // 2
    logits = compute_logits(model, x, layer, slice(half + 1, -1))
    targets = ids[:, half + 2 :]
    loss = F.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)
    return loss, (logits.argmax(-1) == targets).float().mean(dim=1)


def measure_text(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    x: Float[Tensor, "B T C"] | None = None,
    layer: int = 0,
) -> Float[Tensor, " B"]:
    """Return the loss (nats a token) of each text, its first token included.

    Args:
        model: as it is, or with edited heads.
        ids: texts after the start symbol.
        x: the input of a block, if it is known; the embeddings unless given.
        layer: the number of this block.
    """
    x = model.embed(ids) if x is None else x
    logits = compute_logits(model, x, layer, slice(0, -1))
    loss = F.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
    return loss.mean(dim=1)
