"""A training run: what is trained, on what, and how."""

from dataclasses import dataclass, replace

from torch import nn

from attnbook.attention.multi_head import MultiHeadMemory
from attnbook.attention.recurrent import (
    ConcatScore,
    DotScore,
    GeneralScore,
    GlobalAttention,
    LocationScore,
    MonotonicAttention,
    PredictiveAttention,
    ScaledDotScore,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import (
    BahdanauDecoder,
    Decoder,
    Encoder,
    EncoderDecoder,
    LuongDecoder,
)
from attnbook.models.transformer import PostNorm, PreNorm, Size, transformer
from attnbook.records import read_record
from attnbook.training.loop import Recipe
from attnbook.training.tasks import Task, load_task

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
NORM_PLACEMENTS = {"pre": PreNorm, "post": PostNorm}
# Source positions of a location score: the longest source trained on.
MAX_POSITIONS = 50


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        task: the name of its data.
        attention: whether the decoder has attention.
        recipe: how it is trained, the seed included.
        embedding: width of a symbol's vector.
        encoder: width of one direction of the encoder.
        decoder: width of the decoder's state.
        readout: width of the maxout layer.
        cell: "gru" or "lstm".
        directions: of the encoder.
        backwards: whether the source is read in reverse.
        dropout: share of entries dropped in training.
        score: "additive", "dot", "scaled_dot", "general", "concat" or
            "location".
        after: whether the decoder attends after its step, as Luong's does.
        feeding: whether it has input feeding: the attentional vector is part
            of the next input.
        window: "global", "monotonic" or "predictive".
        reach: positions of a window on either side.
        heads: of multi-head attention; 0 for attention with one score.
        blocks: of a Transformer's encoder, and of its decoder; 0 for a
            recurrent model. Its width is `embedding`.
        hidden: width of a Transformer's feed-forward networks.
        norm: "pre" for pre-norm or "post" for post-norm.
        every: trains on every n-th training pair.
        ship: whether the weights are stored beside the results.
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
    norm: str = "pre"
    every: int = 1
    ship: bool = False

    def data(self) -> Task:
        """Return the data this run learns from."""
        return load_task(self.task, self.backwards)

    def model(self) -> EncoderDecoder:
        """Return the model with the first weights that the seed gives."""
        data, cell = self.data(), CELLS[self.cell]
        with use_seed(self.recipe.seed):
            if self.blocks:
                return transformer(len(data.sources), len(data.targets), self.size())
            encoder = Encoder(
                len(data.sources),
                self.embedding,
                self.encoder,
                self.directions,
                cell,
            )
            memory, symbols = encoder.width, len(data.targets)
            make = self.make_luong_decoder if self.after else self.make_bahdanau_decoder
            return EncoderDecoder(encoder, make(symbols, memory, cell))

    def size(self) -> Size:
        """Return the size of a Transformer."""
        return Size(
            self.embedding,
            self.heads,
            self.hidden,
            self.blocks,
            self.dropout,
            NORM_PLACEMENTS[self.norm],
        )

    def make_bahdanau_decoder(self, symbols: int, memory: int, cell: type) -> nn.Module:
        """Return a decoder of chapter 1 or 2, with any score in it."""
        kind: type[nn.Module] = Decoder
        extra: tuple[int, ...] = ()
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
            decoder.attention = self.make_score(memory)
        return decoder

    def make_luong_decoder(self, symbols: int, memory: int, cell: type) -> nn.Module:
        """Return a decoder of chapter 3."""
        return LuongDecoder(
            symbols,
            self.embedding,
            self.decoder,
            memory,
            self.make_attention(memory),
            recurrent=cell,
            dropout=self.dropout,
            feeding=self.feeding,
        )

    def make_score(self, memory: int) -> nn.Module:
        """Return the score of decoder states and memory."""
        makers = {
            "dot": lambda: DotScore(self.decoder, memory),
            "scaled_dot": lambda: ScaledDotScore(self.decoder, memory),
            "general": lambda: GeneralScore(self.decoder, memory),
            "concat": lambda: ConcatScore(self.decoder, memory, self.decoder // 2),
            "location": lambda: LocationScore(self.decoder, MAX_POSITIONS),
        }
        return makers[self.score]()

    def make_attention(self, memory: int) -> nn.Module:
        """Return the attention: multi-head, or a score with its window."""
        if self.heads:
            return MultiHeadMemory(self.decoder, memory, self.heads)
        score = self.make_score(memory)
        if self.window == "monotonic":
            return MonotonicAttention(score, self.reach)
        if self.window == "predictive":
            return PredictiveAttention(
                score, self.decoder, self.decoder // 2, self.reach
            )
        return GlobalAttention(score)


def read_run(name: str) -> Run:
    """Return the settings of a recorded training run, from its record.

    Raises:
        ValueError: if there is no such record, or it is not of a training run.
    """
    record = read_record(name)
    if "recipe" not in record or "model" not in record:
        raise ValueError(
            f"{name!r} is not the record of a training run: it has the fields "
            f"{[*record]}, without 'model' or 'recipe'"
        )
    return Run(**record["model"], recipe=Recipe(**record["recipe"]))


def change_seed(run: Run, seed: int, **changes) -> Run:
    """Return the run with another seed, and other changes."""
    return replace(run, recipe=replace(run.recipe, seed=seed), **changes)
