"""The recorded runs of chapters 1 and 2: what is trained, and how.

Chapter: chapters/01_bottleneck
Source: none
Axes: none
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from attnbook.bahdanau import BahdanauDecoder
from attnbook.encoder_decoder import Decoder, Encoder, EncoderDecoder
from attnbook.evidence.tasks import Task, task
from attnbook.training import Recipe

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}


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
    ship: bool = False

    def data(self) -> Task:
        """Return the data this run learns from."""
        return task(self.task, self.backwards)

    def model(self) -> EncoderDecoder:
        """Return the model with the first weights that the seed gives."""
        data, cell = self.data(), CELLS[self.cell]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            encoder = Encoder(
                len(data.sources),
                self.embedding,
                self.encoder,
                self.directions,
                cell,
            )
            widths = (self.embedding, self.decoder, encoder.width)
            kind, extra = Decoder, ()
            if self.attention:
                kind, extra = BahdanauDecoder, (self.decoder // 2,)
            decoder = kind(
                len(data.targets),
                *widths,
                self.readout,
                *extra,
                recurrent=cell,
                dropout=self.dropout,
            )
        return EncoderDecoder(encoder, decoder)


# Word -> phoneme. The decoder without attention is wider, so that both models
# have as many parameters; the run's record says how many.
SPELL = Run("cmudict", True, Recipe(epochs=7, size=64, rate=2e-3))
SPELL_FIXED = replace(SPELL, attention=False, decoder=200)
ONE_WAY = replace(
    SPELL_FIXED,
    directions=1,
    encoder=192,
    recipe=replace(SPELL.recipe, epochs=2),
)
# English -> French, subword pieces.
HELP = Run(
    "libreoffice",
    True,
    Recipe(epochs=5, size=64, rate=2e-3),
    embedding=96,
    encoder=128,
    decoder=256,
    readout=96,
    dropout=0.2,
)
HELP_FIXED = replace(HELP, attention=False, decoder=276)
# English -> French, the small grammar with known alignments.
TALK = Run(
    "grammar",
    True,
    Recipe(epochs=6, size=64, rate=3e-3),
    encoder=64,
    decoder=128,
    readout=48,
    ship=True,
)
TALK_FIXED = replace(TALK, attention=False, decoder=136)


def seeded(run: Run, seed: int, **changes) -> Run:
    """Return the run with another seed, and other changes."""
    return replace(run, recipe=replace(run.recipe, seed=seed), **changes)


RUNS = {
    **{
        f"cmudict_attention_{s}": seeded(SPELL, s, ship=s == 0)
        for s in range(3)
    },
    **{
        f"cmudict_fixed_{s}": seeded(SPELL_FIXED, s, ship=s == 0)
        for s in range(3)
    },
    "libreoffice_attention_0": HELP,
    "libreoffice_fixed_0": HELP_FIXED,
    **{f"grammar_attention_{s}": seeded(TALK, s) for s in range(3)},
    "grammar_fixed_0": TALK_FIXED,
    # One direction only, the word as it is or reversed, in fewer epochs.
    **{
        f"cmudict_{way}_{s}": seeded(
            replace(ONE_WAY, backwards=way == "backward"), s, ship=s == 0
        )
        for way in ("forward", "backward")
        for s in range(2)
    },
    # An LSTM has four gates to a GRU's three; narrower, it is as large.
    "cmudict_attention_lstm_0": replace(
        SPELL, cell="lstm", encoder=84, decoder=166
    ),
    "cmudict_fixed_lstm_0": replace(
        SPELL_FIXED, cell="lstm", encoder=80, decoder=168
    ),
}
