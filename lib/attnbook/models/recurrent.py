"""Recurrent encoder-decoders: one context vector, Bahdanau's and Luong's attention.

Source: the encoder, and a decoder that receives one context at every step: Cho et
    al. (2014), sections 2.2 and 2.3, https://arxiv.org/abs/1406.1078; Sutskever et
    al. (2014), section 2, https://arxiv.org/abs/1409.3215; two directions: Schuster
    and Paliwal (1997). `BahdanauDecoder`, `Readout`: Bahdanau et al. (2015), section
    3.1, equation 4, section 3.2, appendices A.1.2 and A.2.2,
    https://arxiv.org/abs/1409.0473. `LuongDecoder`: Luong et al. (2015), section 3,
    equations 5 and 6, section 3.3, https://arxiv.org/abs/1508.04025. Departures:
    PyTorch's GRU and LSTM equations; one recurrent layer; one linear bridge for each
    first state; the readout takes the state after the step (equation 4).
Axes: B batch, S source symbols, T target symbols, M memory width, V symbols
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnbook.attention.recurrent import AdditiveAttention, context
from attnbook.data.vocabulary import PAD

State = tuple[Tensor, ...]


class Memory(NamedTuple):
    """The output of an encoder; every tensor has the batch axis first.

    Attributes:
        states: (B, S, M) one state per source symbol, 0 at padding.
        last: (B, M) each direction's state after its last *real* symbol.
        lengths: (B,) how many of the S symbols are real.
    """

    states: Float[Tensor, "B S M"]
    last: Float[Tensor, "B M"]
    lengths: Int[Tensor, " B"]

    def padding_mask(self) -> Bool[Tensor, "B S"]:
        """Return True where a source symbol is real, False at padding."""
        positions = torch.arange(self.states.shape[1], device=self.lengths.device)
        return positions < self.lengths[:, None]


class Encoder(nn.Module):
    """A recurrent encoder of the source, in one or two directions.

    Args:
        symbols: number of source symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state of each direction.
        directions: 1 reads left to right; 2 also right to left.
        limit: the longest source accepted.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        directions: int = 2,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        limit: int = 512,
    ):
        super().__init__()
        if directions not in (1, 2):
            raise ValueError(f"directions must be 1 or 2, not {directions}")
        self.hidden, self.width = hidden, hidden * directions
        self.directions, self.limit = directions, limit
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.recurrent = recurrent(
            embedding, hidden, batch_first=True, bidirectional=directions == 2
        )

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Read each source up to its own length; errors as in `require_lengths`."""
        require_lengths(source, lengths, self.limit)
        return Memory(*run_packed(self.recurrent, self.embed(source), lengths), lengths)


def run_packed(
    recurrent: nn.Module, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
    """Return the states of sequences, and each direction's state after its last one.

    Packing stops each direction at the true end: the last state does not depend on
    padding, and the backward direction starts at the last real symbol.
    """
    packed = pack_padded_sequence(
        x, lengths.cpu(), batch_first=True, enforce_sorted=False
    )
    states, last = recurrent(packed)
    states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
    last = last[0] if isinstance(last, tuple) else last
    return states, last.transpose(0, 1).flatten(1)


def require_lengths(source: Tensor, lengths: Tensor, limit: int) -> None:
    """Raise ValueError unless 1 <= lengths <= width of source <= limit."""
    width = source.shape[1]
    if width > limit:
        raise ValueError(
            f"the source has {width} symbols but the model's limit is {limit}"
        )
    if lengths.min() < 1:
        raise ValueError(
            f"every length must be at least 1, not {int(lengths.min())}: "
            "an empty sequence has no final state"
        )
    if lengths.max() > width:
        raise ValueError(
            f"a length is {int(lengths.max())} but the source is only "
            f"{width} symbols wide"
        )


class DecoderOutput(NamedTuple):
    """The output of a decoder: logits (B, T, V), weights (B, T, S) or None."""

    logits: Tensor
    weights: Tensor | None


def run_recurrent(
    recurrent: nn.RNNBase, inputs: Float[Tensor, "B T I"], state: tuple[Tensor, ...]
) -> tuple[Float[Tensor, "B T H"], tuple[Tensor, ...]]:
    """Run a GRU (state: h) or an LSTM (state: h, c) from a given state."""
    layered = tuple(x[None].contiguous() for x in state)
    outputs, after = recurrent(inputs, layered if len(layered) > 1 else layered[0])
    after = after if isinstance(after, tuple) else (after,)
    return outputs, tuple(x[0] for x in after)


def _make_bridges(
    recurrent: type[nn.RNNBase], memory: int, hidden: int
) -> nn.ModuleList:
    states = 2 if recurrent is nn.LSTM else 1  # an LSTM's: h and c
    return nn.ModuleList(nn.Linear(memory, hidden) for _ in range(states))


class Readout(nn.Module):
    """The deep output with a maxout layer that turns a state into logits."""

    def __init__(self, width: int, readout: int, symbols: int, dropout: float):
        super().__init__()
        self.mix = nn.Linear(width, 2 * readout)
        self.drop = nn.Dropout(dropout)
        self.symbols = nn.Linear(readout, symbols)

    def forward(self, *parts: Float[Tensor, "B T _"]) -> Float[Tensor, "B T V"]:
        """Return logits from the state, the last symbol and the context."""
        pairs = self.mix(torch.cat(parts, dim=-1)).unflatten(-1, (-1, 2))
        return self.symbols(self.drop(pairs.max(dim=-1).values))


class RecurrentDecoder(nn.Module):
    """Teacher forcing and single steps of decoders, which define `start` and `decode`.

    A state is a tuple of tensors with the batch axis first. `decode` returns the output
    for symbols (B, T) that follow a state, and the state after them.
    """

    start: Callable[[Memory], State]
    decode: Callable[[Tensor, State, Memory], tuple[DecoderOutput, State]]

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return logits and weights of every step, given the true previous symbols."""
        return self.decode(previous, self.start(memory), memory)[0]

    def step(
        self, previous: Int[Tensor, " B"], state: State, memory: Memory
    ) -> tuple[Float[Tensor, "B V"], State, Float[Tensor, "B S"] | None]:
        """Return logits of the next symbol, the state after it, weights or None."""
        (logits, weights), state = self.decode(previous[:, None], state, memory)
        return logits[:, 0], state, None if weights is None else weights[:, 0]


class Decoder(RecurrentDecoder):
    """A decoder that receives one context vector for the whole source.

    Args:
        symbols: number of target symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state.
        memory: width M of the encoder's memory.
        readout: width of the maxout layer.
        dropout: of embedding and readout in training.
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
        self.bridges = _make_bridges(recurrent, memory, hidden)
        self.readout = Readout(hidden + embedding + memory, readout, symbols, dropout)

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state, and the context vector."""
        first = (torch.tanh(bridge(memory.last)) for bridge in self.bridges)
        return (*first, memory.last)

    def decode(
        self, previous: Int[Tensor, "B T"], state: State, memory: Memory
    ) -> tuple[DecoderOutput, State]:
        """Return logits after each symbol, without weights, and the state after all."""
        *before, context = state
        words = self.drop(self.embed(previous))
        contexts = context[:, None].expand(-1, previous.shape[1], -1)
        outputs, after = run_recurrent(
            self.recurrent, torch.cat([words, contexts], dim=-1), tuple(before)
        )
        logits = self.readout(outputs, words, contexts)
        return DecoderOutput(logits, None), (*after, context)


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
        """Return the output for each next symbol under teacher forcing.

        `source`: symbols, or whatever else the encoder reads; `previous`: the target,
        shifted by one.
        """
        return self.decoder(previous, self.encoder(source, lengths))


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(x.numel() for x in model.parameters() if x.requires_grad)


class BahdanauDecoder(RecurrentDecoder):
    """A decoder that attends *before* its recurrent step.

    c_i from s_{i-1}; then s_i = f(s_{i-1}, y_{i-1}, c_i); then y_i from s_i, y_{i-1}
    and c_i. The first state is tanh(W_s h) of the *backward* encoder state at the first
    symbol, which depends on the whole source.

    Args as in `Decoder`, with the memory of two directions; alignment: the width of the
    alignment model.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        memory: int,
        readout: int,
        alignment: int,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)
        self.attention = AdditiveAttention(hidden, memory, alignment)
        self.recurrent = recurrent(embedding + memory, hidden, batch_first=True)
        self.bridges = _make_bridges(recurrent, memory // 2, hidden)
        self.readout = Readout(hidden + embedding + memory, readout, symbols, dropout)

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state, and the keys, projected once."""
        backward = memory.last[:, memory.last.shape[1] // 2 :]
        first = (torch.tanh(bridge(backward)) for bridge in self.bridges)
        return (*first, self.attention.key(memory.states))

    def decode(
        self, previous: Int[Tensor, "B T"], state: State, memory: Memory
    ) -> tuple[DecoderOutput, State]:
        """Return logits and weights after each symbol, and the state after all."""
        before: Sequence[Tensor]
        *before, keys = state
        words = self.drop(self.embed(previous))
        steps = []
        for word in words.split(1, dim=1):
            *step, before = self._run_step(word, before, keys, memory)
            steps.append(step)
        outputs, contexts, weights = (
            torch.cat(x, dim=1) for x in zip(*steps, strict=True)
        )
        logits = self.readout(outputs, words, contexts)
        return DecoderOutput(logits, weights), (*before, keys)

    def _run_step(
        self, word: Tensor, state: Sequence[Tensor], keys: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor, Tensor, Sequence[Tensor]]:
        scores = self.attention(state[0][:, None], keys)
        context_vector, weights = context(scores, memory.states, memory.lengths)
        output, state = run_recurrent(
            self.recurrent, torch.cat([word, context_vector], dim=-1), tuple(state)
        )
        return output, context_vector, weights, state


class LuongDecoder(RecurrentDecoder):
    """A decoder that attends *after* its recurrent step.

    h_t from the last word; c_t from h_t; then the attentional vector tanh(W_c [c_t;
    h_t]) predicts the next word. Without input feeding no state depends on a context
    vector, so all steps of a known target are computed at once. With input feeding the
    vector joins the next input.

    Args as in `Decoder`; hidden: also the width of the attentional vector; attention:
    the module that computes a context, such as `GlobalAttention`.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        memory: int,
        attention: nn.Module,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        dropout: float = 0.0,
        feeding: bool = False,
    ):
        super().__init__()
        self.feeding, self.hidden = feeding, hidden
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)
        self.recurrent = recurrent(
            embedding + hidden * feeding, hidden, batch_first=True
        )
        self.bridges = _make_bridges(recurrent, memory, hidden)
        self.mix = nn.Linear(memory + hidden, hidden, bias=False)
        self.symbols = nn.Linear(hidden, symbols)
        self.attention = attention

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state; zeros, fed to the first step; step 0; the keys."""
        first = [torch.tanh(bridge(memory.last)) for bridge in self.bridges]
        fed = torch.zeros_like(first[0])
        step = torch.zeros_like(memory.lengths)
        # PyTorch declares every attribute of a module as Tensor | Module.
        keys = self.attention.key(memory.states)  # type: ignore[operator]
        return (*first, fed, step, keys)

    def decode(
        self, previous: Int[Tensor, "B T"], state: State, memory: Memory
    ) -> tuple[DecoderOutput, State]:
        """Return logits and weights after each symbol, and the state after all."""
        before: Sequence[Tensor]
        *before, fed, step, keys = state
        words = self.drop(self.embed(previous))
        now = int(step[0])  # all sequences of a batch are at the same step
        if self.feeding:
            steps = []
            for t, word in enumerate(words.split(1, dim=1), start=now):
                word = torch.cat([word, fed[:, None]], dim=-1)
                vector, weight, before = self._attend(word, before, keys, memory, t)
                fed = vector[:, 0]
                steps.append((vector, weight))
            vectors, weights = (torch.cat(x, 1) for x in zip(*steps, strict=True))
        else:
            vectors, weights, before = self._attend(words, before, keys, memory, now)
        logits = self.symbols(self.drop(vectors))
        after = (*before, vectors[:, -1], step + previous.shape[1], keys)
        return DecoderOutput(logits, weights), after

    def _attend(
        self,
        words: Tensor,
        state: Sequence[Tensor],
        keys: Tensor,
        memory: Memory,
        step: int,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        outputs, state = run_recurrent(self.recurrent, words, tuple(state))
        context, weights = self.attention(
            outputs, keys, memory.states, memory.lengths, step
        )
        mixed = torch.tanh(self.mix(torch.cat([context, outputs], dim=-1)))
        return mixed, weights, state
