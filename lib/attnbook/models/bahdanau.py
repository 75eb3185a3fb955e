"""Bahdanau's decoder: attention before the recurrent step.

Source: Bahdanau et al. (2015), section 3.1, equation 4, section 3.2 and
    appendix A.1.2, https://arxiv.org/abs/1409.0473. Departures: PyTorch's GRU
    (or LSTM) for the gated unit; the readout takes the state after the step
    (its equation 4).
Axes: B batch, T target steps, S source symbols, E value width, V symbols
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.recurrent import AdditiveAttention, context
from attnbook.data.vocabulary import PAD
from attnbook.models.encoder import Memory
from attnbook.models.encoder_decoder import (
    DecoderOutput,
    Readout,
    run_recurrent,
)


class BahdanauDecoder(nn.Module):
    """A decoder that attends *before* its recurrent step.

    c_i from s_{i-1}; then s_i = f(s_{i-1}, y_{i-1}, c_i); then y_i from s_i,
    y_{i-1} and c_i. The first state is tanh(W_s h) of the *backward* encoder
    state at the first symbol (A.2.2), which depends on the whole source.

    Args:
        symbols: number of target symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state.
        memory: width M of the encoder's memory (two directions).
        readout: width of the maxout layer.
        alignment: width A of the alignment model.
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
        alignment: int,
        recurrent: type[nn.GRU] | type[nn.LSTM] = nn.GRU,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embed = nn.Embedding(symbols, embedding, padding_idx=PAD)
        self.drop = nn.Dropout(dropout)
        self.attention = AdditiveAttention(hidden, memory, alignment)
        self.recurrent = recurrent(embedding + memory, hidden, batch_first=True)
        states = 2 if recurrent is nn.LSTM else 1
        self.bridges = nn.ModuleList(
            nn.Linear(memory // 2, hidden) for _ in range(states)
        )
        self.readout = Readout(hidden + embedding + memory, readout, symbols, dropout)

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state, and the keys, projected once."""
        backward = memory.last[:, memory.last.shape[1] // 2 :]
        first = (torch.tanh(bridge(backward)) for bridge in self.bridges)
        return (*first, self.attention.key(memory.states))

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return logits and weights of every step, given the true previous."""
        *first, keys = self.start(memory)
        state: Sequence[Tensor] = first
        words = self.drop(self.embed(previous))
        steps = []
        for word in words.split(1, dim=1):
            output, context_vector, weights, state = self._run_step(
                word, state, keys, memory
            )
            steps.append((output, context_vector, weights))
        outputs, contexts, weights = (
            torch.cat(x, dim=1) for x in zip(*steps, strict=True)
        )
        return DecoderOutput(self.readout(outputs, words, contexts), weights)

    def step(
        self,
        previous: Int[Tensor, " B"],
        state: tuple[Tensor, ...],
        memory: Memory,
    ) -> tuple[Float[Tensor, "B V"], tuple[Tensor, ...], Float[Tensor, "B S"]]:
        """Return logits of the next symbol, the state after it, the weights."""
        *before, keys = state
        word = self.drop(self.embed(previous[:, None]))
        output, context_vector, weights, after = self._run_step(
            word, before, keys, memory
        )
        logits = self.readout(output, word, context_vector)
        return logits[:, 0], (*after, keys), weights[:, 0]

    def _run_step(
        self,
        word: Tensor,
        state: Sequence[Tensor],
        keys: Tensor,
        memory: Memory,
    ) -> tuple[Tensor, Tensor, Tensor, Sequence[Tensor]]:
        scores = self.attention(state[0][:, None], keys)
        context_vector, weights = context(scores, memory.states, memory.lengths)
        output, state = run_recurrent(
            self.recurrent,
            torch.cat([word, context_vector], dim=-1),
            tuple(state),
        )
        return output, context_vector, weights, state
