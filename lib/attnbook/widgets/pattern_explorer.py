"""The pattern explorer: what a sparse pattern reaches, costs and keeps.

A pattern is a causal window, maybe dilated, with attention sinks and global
tokens; it may be rounded up to whole blocks, with random blocks added. The
widget counts the scores that it computes, shows which inputs can reach a
position through several layers, and how much of the weight of a recorded
attention map falls on the keys that the pattern keeps.

Source: the masks and layouts are those of `attnbook.masks`
Axes: T positions, N blocks of positions
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path

import torch
import traitlets
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook import masks
from attnbook.masks import rules
from attnbook.masks.layouts import cover_rule, random_layout, receptive_field
from attnbook.masks.rules import Rule
from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import require_choice

HERE = Path(__file__)
MOST, SEED = 64, 0
BLOCKS = (1, 4, 8, 16)


@dataclass(frozen=True)
class Pattern:
    """Which keys the queries of a decoder can attend to.

    Attributes:
        window: keys of the window, the query's own among them.
        step: of a dilated window; 1 for one without gaps.
        sinks: first positions that stay visible.
        global_tokens: positions, evenly spread, that attend to all earlier
            positions, and are attended to by all later ones.
        block: positions of a block if the pattern is rounded up to whole
            blocks; 1 if it is not.
        random_blocks: blocks that each row of blocks gets in addition.
    """

    window: int = 16
    step: int = 1
    sinks: int = 0
    global_tokens: int = 0
    block: int = 1
    random_blocks: int = 0

    def fit(self, T: int) -> "Pattern":
        """Return the pattern for T positions: a window no longer than T."""
        fitting = self.block if T % self.block == 0 else 1
        return replace(self, window=min(self.window, T), block=fitting)

    def list_globals(self, T: int) -> list[int]:
        """Return the positions of the global tokens."""
        count = self.global_tokens
        return [(2 * i + 1) * T // (2 * count) for i in range(count)]

    def make_rule(self, T: int) -> Rule:
        """Return the rule of the pattern, before it is rounded to blocks."""
        near = rules.dilated(T, T, self.window, self.step)
        first = rules.sinks(T, T, self.sinks)
        chosen = rules.global_tokens(T, T, self.list_globals(T))
        past = rules.causal(T, T)
        return lambda *at: near(*at) | first(*at) | (chosen(*at) & past(*at))

    def layout(self, T: int) -> Bool[Tensor, "N N"]:
        """Return the blocks in which scores are computed."""
        layout = cover_rule(self.make_rule(T), T, T, self.block)
        future = ~masks.causal(*layout.shape)
        if self.block == 1:
            return layout
        return layout | random_layout(layout | future, self.random_blocks, SEED)

    def mask(self, T: int) -> Bool[Tensor, "T T"]:
        """Return True where a query can attend."""
        blocks = masks.block_sparse(self.layout(T), self.block)
        return blocks & masks.causal(T, T)

    def count_scores(self, T: int) -> int:
        """Return how many scores are computed: whole blocks."""
        return int(self.layout(T).sum()) * self.block**2


PRESETS = {
    "Causal attention": Pattern(window=MOST),
    "Sliding window": Pattern(window=16),
    "Dilated window": Pattern(window=16, step=2),
    "Window and sinks": Pattern(window=12, sinks=4),
    "Window and global tokens": Pattern(window=12, global_tokens=4),
    "Blocks, some random": Pattern(window=4, sinks=1, block=8, random_blocks=1),
}


def draw_orders(T: int) -> list[dict]:
    """Return in which order random blocks are chosen, for each size of block.

    `random_layout` takes the blocks of a row in the order of random numbers;
    the page takes them in the order of these ranks.
    """
    orders = []
    for size in BLOCKS[1:]:
        if T % size == 0:
            rng = torch.Generator().manual_seed(SEED)
            drawn = torch.rand(T // size, T // size, generator=rng)
            ranks = drawn.argsort(dim=-1).argsort(dim=-1)
            orders.append({"size": size, "ranks": ranks.tolist()})
    return orders


class PatternExplorer(BookWidget):
    """A sparse pattern, what it reaches and costs, and what it keeps of a map.

    Args:
        example: a dict with a title, the tokens, and `heads`: dicts with a
            title and `thousandths`, rows of 1000 times the weights of the keys
            up to the query's own.
        window: keys of the window, 1 to the number of tokens.
        step: of a dilated window, 1 to 8.
        sinks: first positions that stay visible, 0 to 8.
        global_tokens: evenly spread global tokens, 0 to 8.
        block: positions of a block: 1, 4, 8 or 16, a divisor of the number of
            tokens.
        random_blocks: random blocks of each row of blocks, 0 to 4.
        layers: of the receptive field, 1 to 8.
        position: whose receptive field is shown; the last one unless given.
        head: whose weights are shown, from 0.

    Raises:
        ValueError: if there is no such position or head; traitlets.TraitError
            if another number is outside its range.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    title = traitlets.Unicode().tag(sync=True)
    tokens = traitlets.List().tag(sync=True)
    heads = traitlets.List().tag(sync=True)
    orders = traitlets.List().tag(sync=True)
    presets = traitlets.List().tag(sync=True)
    window = traitlets.Int(12, min=1, max=MOST).tag(sync=True)
    step = traitlets.Int(1, min=1, max=8).tag(sync=True)
    sinks = traitlets.Int(4, min=0, max=8).tag(sync=True)
    global_tokens = traitlets.Int(0, min=0, max=8).tag(sync=True)
    block = traitlets.Enum(BLOCKS, 1).tag(sync=True)
    random_blocks = traitlets.Int(0, min=0, max=4).tag(sync=True)
    layers = traitlets.Int(2, min=1, max=8).tag(sync=True)
    position = traitlets.Int().tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)

    def __init__(self, example: Mapping, position: int | None = None, **traits):
        T = len(example["tokens"])
        super().__init__(
            title=example["title"],
            tokens=example["tokens"],
            heads=example["heads"],
            orders=draw_orders(T),
            presets=[
                {"name": name, **asdict(pattern.fit(T))}
                for name, pattern in PRESETS.items()
            ],
            position=T - 1 if position is None else position,
            **traits,
        )
        require_choice("position", self.position, T)
        require_choice("head", self.head, len(self.heads))

    def pattern(self) -> Pattern:
        """Return the pattern that is shown."""
        names = asdict(Pattern())
        return Pattern(**{name: getattr(self, name) for name in names})

    def mask(self) -> Bool[Tensor, "T T"]:
        """Return True where a query can attend."""
        return self.pattern().mask(len(self.tokens))

    def count_scores(self) -> int:
        """Return how many scores are computed: whole blocks."""
        return self.pattern().count_scores(len(self.tokens))

    def reached(self) -> Bool[Tensor, " T"]:
        """Return which inputs can reach the position through all layers."""
        return receptive_field(self.mask(), self.layers)[self.position]

    def weights(self) -> Float[Tensor, "T T"]:
        """Return the recorded weights of the shown head; each row sums to 1."""
        rows = self.heads[self.head]["thousandths"]
        T = len(rows)
        whole = torch.tensor(
            [[*row, *[0] * (T - len(row))] for row in rows], dtype=torch.float64
        )
        return whole / whole.sum(dim=-1, keepdim=True)

    def kept(self, mask: Bool[Tensor, "T T"] | None = None) -> Float[Tensor, " T"]:
        """Return how much of each query's weight is on the keys of a mask."""
        mask = self.mask() if mask is None else mask
        return (self.weights() * mask).sum(dim=-1)

    def best(self, mask: Bool[Tensor, "T T"] | None = None) -> Float[Tensor, " T"]:
        """Return how much as many keys keep that are chosen by their weight."""
        mask = self.mask() if mask is None else mask
        sums = self.weights().sort(dim=-1, descending=True).values.cumsum(-1)
        return sums.gather(-1, mask.sum(-1, keepdim=True) - 1)[:, 0]

    def fallback(self) -> str:
        """Return a table: what the shown pattern and others cost and keep."""
        T = len(self.tokens)
        known = {name: pattern.fit(T) for name, pattern in PRESETS.items()}
        rows = ""
        for name, pattern in {"Shown": self.pattern(), **known}.items():
            mask = pattern.mask(T)
            reached = receptive_field(mask, self.layers)[self.position]
            rows += (
                f"<tr><th>{name}: {describe_pattern(pattern)}</th>"
                f"<td>{pattern.count_scores(T):,}</td>"
                f"<td>{self.kept(mask).mean():.0%}</td>"
                f"<td>{self.best(mask).mean():.0%}</td>"
                f"<td>{int(reached.sum())}</td></tr>"
            )
        layers = f"{self.layers} layer{'s' * (self.layers > 1)}"
        head = escape(self.heads[self.head]["title"])
        return (
            f"<figure><figcaption>Patterns on a recorded map of {T} tokens "
            f"({escape(self.title)}), {head}: causal attention has "
            f"{T * (T + 1) // 2:,} scores"
            f"</figcaption><table><thead><tr><th>pattern</th>"
            f"<th>scores computed</th><th>weight kept</th>"
            f"<th>weight of as many keys, chosen by weight</th>"
            f"<th>inputs that reach position {self.position} through {layers}"
            f"</th></tr></thead><tbody>{rows}</tbody></table></figure>"
        )


def describe_pattern(pattern: Pattern) -> str:
    """Return the parts of a pattern in words."""
    dilated = f" with step {pattern.step}" if pattern.step > 1 else ""
    parts = [f"a window of {pattern.window}{dilated}"]
    for count, one, several in (
        (pattern.sinks, "sink", "sinks"),
        (pattern.global_tokens, "global token", "global tokens"),
    ):
        parts += [f"{count} {one if count == 1 else several}"] * (count > 0)
    if pattern.block > 1:
        parts.append(f"blocks of {pattern.block}")
        random = pattern.random_blocks
        parts += [f"{random} random in each row of blocks"] * (random > 0)
    return ", ".join(parts)
