"""A training run: what is trained, on what, and how.

Chapter: chapters/01_bottleneck
Source: none
Axes: none
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from attnbook.bahdanau import BahdanauDecoder
from attnbook.encoder import Encoder
from attnbook.encoder_decoder import Decoder, EncoderDecoder
from attnbook.evidence.tasks import Task, task
from attnbook.local_attention import (
    GlobalAttention,
    MonotonicAttention,
    PredictiveAttention,
)
from attnbook.luong import ConcatScore, DotScore, GeneralScore, LocationScore
from attnbook.luong_decoder import LuongDecoder
from attnbook.multi_head_memory import MultiHeadMemory
from attnbook.training import Recipe
from attnbook.transformer import Size, transformer
from attnbook.transformer_blocks import PostNorm, PreNorm

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
AROUND = {"pre": PreNorm, "post": PostNorm}
# Longest source that a location score tells apart: the longest ones trained on.
PLACES = 50


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        task: the name of its data.
        attention: whether the decoder looks back.
        recipe: how it is trained, the seed included.
        embedding: width of a symbol's vector.
        encoder: width of one direction of the encoder.
        decoder: width of the decoder's state.
        readout: width of the maxout layer.
        cell: "gru" or "lstm".
        directions: of the encoder.
        backwards: whether the source is read in reverse.
        dropout: share of entries dropped in training.
        score: "additive", "dot", "general", "concat" or "location".
        after: whether the decoder looks after its step, as Luong's does.
        feeding: whether the attentional vector joins the next word.
        window: "global", "monotonic" or "predictive".
        reach: how far a window goes to either side.
        heads: of multi-head attention; 0 for one score alone.
        blocks: of a Transformer's encoder, and of its decoder; 0 for a
            recurrent model. Its width is `embedding`.
        hidden: width of a Transformer's feed-forward networks.
        around: "pre" or "post": where its norms stand.
        every: it learns from each n-th training pair.
        ship: whether the weights are kept beside the results.
    """

    task: str
    attention: bool
    recipe: Recipe
    embedding: int = 48
    encoder: int = 96
    decoder: int = 192
    readout: int = 64
    cell: str = "gru"
    directions: int = 2
    backwards: bool = False
    dropout: float = 0.0
    score: str = "additive"
    after: bool = False
    feeding: bool = False
    window: str = "global"
    reach: int = 0
    heads: int = 0
    blocks: int = 0
    hidden: int = 0
    around: str = "pre"
    every: int = 1
    ship: bool = False

    def data(self) -> Task:
        """Return the data this run learns from."""
        return task(self.task, self.backwards)

    def model(self) -> EncoderDecoder:
        """Return the model with the first weights that the seed gives."""
        data, cell = self.data(), CELLS[self.cell]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            if self.blocks:
                return transformer(
                    len(data.sources), len(data.targets), self.size()
                )
            encoder = Encoder(
                len(data.sources),
                self.embedding,
                self.encoder,
                self.directions,
                cell,
            )
            memory, symbols = encoder.width, len(data.targets)
            make = self.looks_after if self.after else self.looks_before
            return EncoderDecoder(encoder, make(symbols, memory, cell))

    def size(self) -> Size:
        """Return the size of a Transformer."""
        return Size(
            self.embedding,
            self.heads,
            self.hidden,
            self.blocks,
            self.dropout,
            AROUND[self.around],
        )

    def looks_before(self, symbols: int, memory: int, cell: type) -> nn.Module:
        """Return a decoder of chapter 1 or 2, with any score in it."""
        kind, extra = Decoder, ()
        if self.attention:
            kind, extra = BahdanauDecoder, (self.decoder // 2,)
        decoder = kind(
            symbols,
            self.embedding,
            self.decoder,
            memory,
            self.readout,
            *extra,
            recurrent=cell,
            dropout=self.dropout,
        )
        if self.score != "additive":
            decoder.attention = self.scoring(memory)
        return decoder

    def looks_after(self, symbols: int, memory: int, cell: type) -> nn.Module:
        """Return a decoder of chapter 3."""
        return LuongDecoder(
            symbols,
            self.embedding,
            self.decoder,
            memory,
            self.looking(memory),
            recurrent=cell,
            dropout=self.dropout,
            feeding=self.feeding,
        )

    def scoring(self, memory: int) -> nn.Module:
        """Return the score of decoder states and memory."""
        makers = {
            "dot": lambda: DotScore(self.decoder, memory),
            "general": lambda: GeneralScore(self.decoder, memory),
            "concat": lambda: ConcatScore(
                self.decoder, memory, self.decoder // 2
            ),
            "location": lambda: LocationScore(self.decoder, PLACES),
        }
        return makers[self.score]()

    def looking(self, memory: int) -> nn.Module:
        """Return the attention: heads, or a score and what it may see."""
        if self.heads:
            return MultiHeadMemory(self.decoder, memory, self.heads)
        score = self.scoring(memory)
        if self.window == "monotonic":
            return MonotonicAttention(score, self.reach)
        if self.window == "predictive":
            return PredictiveAttention(
                score, self.decoder, self.decoder // 2, self.reach
            )
        return GlobalAttention(score)


def seeded(run: Run, seed: int, **changes) -> Run:
    """Return the run with another seed, and other changes."""
    return replace(run, recipe=replace(run.recipe, seed=seed), **changes)
