"""A pretrained decoder whose queries attend to selected keys only.

Axes: B batch, H heads, G groups, T positions, R the queries among them that are
    looked at, C model width
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.attention.grouped_query import grouped_scores
from attnbook.attention.multi_head import merge_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.models.modern_block import Cache, RotaryAttention
from attnbook.models.modern_decoder import ModernDecoder

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

    Args:
        select: returns the mask of the queries of a layer.
        size: queries of a chunk, a multiple of the size of a block.
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
    model: ModernDecoder,
    passages: Sequence[Int[Tensor, "T"]],
    select: Selection,
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
