"""The encoder-decoder: a source sequence becomes one vector, then a target.

Source: Cho et al. (2014), sections 2.2 and 2.3, https://arxiv.org/abs/1406.1078,
    whose decoder receives the context at every step; Sutskever et al. (2014),
    section 2, https://arxiv.org/abs/1409.3215. Departures: PyTorch's
    GRU and LSTM equations, one linear bridge for each state the decoder needs.
Axes: B batch, S source symbols, T target symbols, M memory width, V symbols
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attnbook.data.vocabulary import PAD
from attnbook.models.encoder import Memory


class DecoderOutput(NamedTuple):
    """The output of a decoder: logits (B, T, V), weights (B, T, S) or None."""

    logits: Tensor
    weights: Tensor | None


def run_recurrent(
    recurrent: nn.RNNBase,
    inputs: Float[Tensor, "B T I"],
    state: tuple[Tensor, ...],
) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
    """Run a GRU (state: h) or an LSTM (state: h, c) from a given state."""
    layered = tuple(x[None].contiguous() for x in state)
    outputs, after = recurrent(inputs, layered if len(layered) > 1 else layered[0])
    after = after if isinstance(after, tuple) else (after,)
    return outputs, tuple(x[0] for x in after)


class Readout(nn.Module):
    """The deep output with a maxout layer that turns a state into logits.

    Source: Bahdanau et al. (2015), appendix A.2.2. The paper's formula takes
    the state before the step, its equation 4 the state after; we take the
    latter.
    """

    def __init__(self, width: int, readout: int, symbols: int, dropout: float):
        super().__init__()
        self.mix = nn.Linear(width, 2 * readout)
        self.drop = nn.Dropout(dropout)
        self.symbols = nn.Linear(readout, symbols)

    def forward(self, *parts: Float[Tensor, "B T _"]) -> Float[Tensor, "B T V"]:
        """Return logits from the state, the last symbol and the context."""
        pairs = self.mix(torch.cat(parts, dim=-1)).unflatten(-1, (-1, 2))
        return self.symbols(self.drop(pairs.max(dim=-1).values))


class Decoder(nn.Module):
    """A decoder that receives one context vector for the whole source.

    Args:
        symbols: number of target symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state.
        memory: width M of the encoder's memory.
        readout: width of the maxout layer.
        recurrent: `nn.GRU` or `nn.LSTM`.
        dropout: dropout probability of embedding and readout in training.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        memory: int,
        readout: int,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)
        self.recurrent = recurrent(embedding + memory, hidden, batch_first=True)
        states = 2 if recurrent is nn.LSTM else 1
        self.bridges = nn.ModuleList(nn.Linear(memory, hidden) for _ in range(states))
        self.readout = Readout(hidden + embedding + memory, readout, symbols, dropout)

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state, and the context vector."""
        first = (torch.tanh(bridge(memory.last)) for bridge in self.bridges)
        return (*first, memory.last)

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return the logits of every next symbol, given the true previous."""
        *state, context = self.start(memory)
        return self._decode(previous, tuple(state), context)[0]

    def step(
        self,
        previous: Int[Tensor, " B"],
        state: tuple[Tensor, ...],
        memory: Memory,
    ) -> tuple[Float[Tensor, "B V"], tuple[Tensor, ...], None]:
        """Return logits of the next symbol, the state after it, no weights."""
        *before, context = state
        output, after = self._decode(previous[:, None], tuple(before), context)
        return output.logits[:, 0], (*after, context), None

    def _decode(
        self, previous: Tensor, state: tuple[Tensor, ...], context: Tensor
    ) -> tuple[DecoderOutput, tuple[Tensor, ...]]:
        words = self.drop(self.embed(previous))
        context = context[:, None].expand(-1, previous.shape[1], -1)
        outputs, state = run_recurrent(
            self.recurrent, torch.cat([words, context], dim=-1), state
        )
        return DecoderOutput(self.readout(outputs, words, context), None), state


class EncoderDecoder(nn.Module):
    """An encoder, and a decoder that receives the encoder's memory."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source: Shaped[Tensor, "B S *C"],
        lengths: Int[Tensor, " B"],
        previous: Int[Tensor, "B T"],
    ) -> DecoderOutput:
        """Return logits (B, T, V) of each next symbol under teacher forcing.

        Args:
            source: symbols, or whatever else the encoder reads.
            lengths: of each source.
            previous: the target, shifted by one.
        """
        return self.decoder(previous, self.encoder(source, lengths))


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(x.numel() for x in model.parameters() if x.requires_grad)
