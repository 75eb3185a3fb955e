"""Luong's decoder: attention after the recurrent step.

Source: Luong et al. (2015), section 3, equations 5 and 6, and section 3.3 on
    input feeding, https://arxiv.org/abs/1508.04025. Departures: one recurrent
    layer; its first state is a layer of the encoder's last states, as in
    chapter 1.
Axes: B batch, T target symbols, S source symbols, M memory width, V symbols
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data.vocabulary import PAD
from attnbook.models.encoder import Memory
from attnbook.models.encoder_decoder import DecoderOutput, run_recurrent


class LuongDecoder(nn.Module):
    """h_t from the last word; c_t from h_t; then tanh(W_c [c_t; h_t]).

    The next word is predicted from this attentional vector. Without input
    feeding no state depends on a context vector, so all steps of a known target
    are computed at once. With input feeding the vector joins the next input.

    Args:
        symbols: number of target symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state, and of the attentional vector.
        memory: width M of the encoder's memory.
        attention: the module that computes a context; see `attention.local`.
        recurrent: `nn.GRU` or `nn.LSTM`.
        dropout: share of embedding and vector entries dropped in training.
        feeding: whether to use input feeding.
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
        states = 2 if recurrent is nn.LSTM else 1
        self.bridges = nn.ModuleList(nn.Linear(memory, hidden) for _ in range(states))
        self.mix = nn.Linear(memory + hidden, hidden, bias=False)
        self.symbols = nn.Linear(hidden, symbols)
        self.attention = attention

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state; then the vector fed, the step, the keys.

        The vector fed to the first step is 0, and the step counts from 0.
        """
        first = [torch.tanh(bridge(memory.last)) for bridge in self.bridges]
        fed = torch.zeros_like(first[0])
        step = torch.zeros_like(memory.lengths)
        # PyTorch declares every attribute of a module as Tensor | Module.
        keys = self.attention.key(memory.states)  # type: ignore[operator]
        return (*first, fed, step, keys)

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> DecoderOutput:
        """Return logits and weights of every step, given the true previous."""
        *first, fed, _step, keys = self.start(memory)
        state: Sequence[Tensor] = first
        words = self.drop(self.embed(previous))
        if not self.feeding:
            vectors, weights, _ = self._attend(words, state, keys, memory, 0)
            return DecoderOutput(self.symbols(self.drop(vectors)), weights)
        steps = []
        for t, word in enumerate(words.split(1, dim=1)):
            word = torch.cat([word, fed[:, None]], dim=-1)
            vector, weights, state = self._attend(word, state, keys, memory, t)
            fed = vector[:, 0]
            steps.append((vector, weights))
        vectors, weights = (torch.cat(x, 1) for x in zip(*steps, strict=True))
        return DecoderOutput(self.symbols(self.drop(vectors)), weights)

    def step(
        self,
        previous: Int[Tensor, " B"],
        state: tuple[Tensor, ...],
        memory: Memory,
    ) -> tuple[Float[Tensor, "B V"], tuple[Tensor, ...], Float[Tensor, "B S"]]:
        """Return logits of the next symbol, the state after it, the weights."""
        *before, fed, step, keys = state
        word = self.drop(self.embed(previous[:, None]))
        if self.feeding:
            word = torch.cat([word, fed[:, None]], dim=-1)
        # All sentences of a batch are at the same step.
        now = int(step[0])
        vector, weights, after = self._attend(word, before, keys, memory, now)
        logits = self.symbols(self.drop(vector))[:, 0]
        return logits, (*after, vector[:, 0], step + 1, keys), weights[:, 0]

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
