"""A training run: what is trained, on what, and how; recorded runs by name."""

from dataclasses import dataclass

from safetensors.torch import load_file
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
from attnbook.records import WEIGHTS, list_records, read_record
from attnbook.training.loop import Recipe
from attnbook.training.tasks import Task, load_task

# How the records of a model of the leaderboard are named.
MODELS = {
    "no attention": "fixed",
    "Bahdanau": "attention",
    "Luong": "luong",
    "hybrid": "hybrid",
    "Transformer": "transformer",
}
# Source positions of a location score: the longest source trained on.
MAX_POSITIONS = 50


@dataclass(frozen=True)
class Run:
    """One training run; its fields are those of the record."""

    task: str  # the name of its data
    attention: bool  # of the decoder
    recipe: Recipe
    embedding: int = 48  # width of a symbol's vector, and of a Transformer
    encoder: int = 96  # width of one direction of the encoder
    decoder: int = 192  # width of the decoder's state
    readout: int = 64  # width of the maxout layer
    cell: str = "gru"  # or "lstm"
    directions: int = 2  # of the encoder
    backwards: bool = False  # the source is read in reverse
    dropout: float = 0.0  # share of entries dropped in training
    score: str = "additive"  # or "dot", "scaled_dot", "general", "concat", "location"
    after: bool = False  # the decoder attends after its step, as Luong's does
    feeding: bool = False  # the attentional vector is part of the next input
    window: str = "global"  # or "monotonic", "predictive"
    reach: int = 0  # positions of a window on either side
    heads: int = 0  # 0 for attention with one score
    blocks: int = 0  # of a Transformer's encoder and decoder; 0 if recurrent
    hidden: int = 0  # width of a Transformer's feed-forward networks
    norm: str = "pre"  # or "post"
    every: int = 1  # trains on every n-th training pair
    ship: bool = False  # whether the weights are stored beside the results

    def data(self) -> Task:
        """Return the data this run learns from."""
        return load_task(self.task, self.backwards)

    def model(self) -> EncoderDecoder:
        """Return the model with the first weights that the seed gives."""
        data, cell = self.data(), {"gru": nn.GRU, "lstm": nn.LSTM}[self.cell]
        sources, symbols = len(data.sources), len(data.targets)
        with use_seed(self.recipe.seed):
            if self.blocks:
                return transformer(sources, symbols, self.size())
            encoder = Encoder(
                sources, self.embedding, self.encoder, self.directions, cell
            )
            make = self.make_luong_decoder if self.after else self.make_bahdanau_decoder
            return EncoderDecoder(encoder, make(symbols, encoder.width, cell))

    def size(self) -> Size:
        """Return the size of a Transformer."""
        norm = {"pre": PreNorm, "post": PostNorm}[self.norm]
        return Size(
            self.embedding, self.heads, self.hidden, self.blocks, self.dropout, norm
        )

    def make_bahdanau_decoder(self, symbols: int, memory: int, cell: type) -> nn.Module:
        """Return a decoder of chapter 1 or 2, with any score in it."""
        sizes = symbols, self.embedding, self.decoder, memory, self.readout
        options = {"recurrent": cell, "dropout": self.dropout}
        if not self.attention:
            return Decoder(*sizes, **options)
        decoder = BahdanauDecoder(*sizes, self.decoder // 2, **options)
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
        if self.score == "concat":
            return ConcatScore(self.decoder, memory, self.decoder // 2)
        if self.score == "location":
            return LocationScore(self.decoder, MAX_POSITIONS)
        kinds = {
            "dot": DotScore,
            "scaled_dot": ScaledDotScore,
            "general": GeneralScore,
        }
        return kinds[self.score](self.decoder, memory)

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


def load_trained(name: str) -> tuple[EncoderDecoder, Task, Run]:
    """Return a run's model with the weights shipped, its data and settings.

    Raises:
        ValueError: if the run is unknown or its weights are not shipped.
    """
    path = WEIGHTS / f"{name}.safetensors"
    if not path.exists():
        shipped = sorted(p.stem for p in WEIGHTS.glob("*.safetensors"))
        raise ValueError(
            f"the weights of {name!r} are not shipped; those of {shipped} are"
        )
    run = read_run(name)
    model = run.model()
    model.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    return model.eval(), run.data(), run


def find_records(task: str, model: str) -> list[dict]:
    """Return a leaderboard model's records on a task, one a seed, or none.

    Raises:
        ValueError: if the leaderboard has no such model.
    """
    if model not in MODELS:
        raise ValueError(f"no model is {model!r}; there are {[*MODELS]}")
    stem = f"{task}_{MODELS[model]}"
    if model == "Luong" and task != "cmudict":
        stem += "_general"
    known = {f"{stem}_{seed}" for seed in range(10)}
    return [read_record(n) for n in list_records(f"{stem}_") if n in known]
