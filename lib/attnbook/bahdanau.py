"""Additive attention: a decoder that looks back at every step.

Chapter: chapters/02_bahdanau
Source: Bahdanau et al. (2015), section 3.1, equations 4 to 6, section 3.2 and
    appendix A.1.2, https://arxiv.org/abs/1409.0473. Departures: PyTorch's GRU
    (or LSTM) for the gated unit; the paper's W_a, U_a, v_a are W_query, W_key
    and v here; the readout takes the state after the step (its equation 4).
Axes: B batch, T queries (target steps), S keys (source symbols), Dq and Dk
    width of query and key, A alignment width, E value width, V symbols
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.encoder_decoder import Decoded, Memory, Readout, advance
from attnbook.vocabulary import PAD


def additive_scores(
    query: Float[Tensor, "B T Dq"],
    key: Float[Tensor, "B S Dk"],
    W_query: Float[Tensor, "A Dq"],
    W_key: Float[Tensor, "A Dk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return v · tanh(W_query q + W_key k) for every query and key.

    Raises:
        ValueError: if a matrix does not fit the width of what it projects.
    """
    for name, matrix, x in ("query", W_query, query), ("key", W_key, key):
        if matrix.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"W_{name} takes width {matrix.shape[-1]} "
                f"but the {name} is {x.shape[-1]} wide"
            )
    queries = query @ W_query.T
    return projected_scores(queries, key @ W_key.T, v)


def projected_scores(
    queries: Float[Tensor, "B T A"],
    keys: Float[Tensor, "B S A"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "B T S"]:
    """Return the scores of queries and keys that are already projected."""
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def context(
    scores: Float[Tensor, "B T S"],
    value: Float[Tensor, "B S E"],
    lengths: Int[Tensor, " B"],
) -> tuple[Float[Tensor, "B T E"], Float[Tensor, "B T S"]]:
    """Return each query's average of the real values, and its weights.

    Args:
        scores: how well each query and key fit.
        value: what is averaged.
        lengths: how many of the S values are real, each at least 1.

    Raises:
        ValueError: on a length of zero or beyond S.
    """
    places = scores.shape[-1]
    if lengths.min() < 1 or lengths.max() > places:
        wrong = int(lengths.min() if lengths.min() < 1 else lengths.max())
        raise ValueError(
            f"a length is {wrong} but must lie between 1 and {places}"
        )
    real = torch.arange(places, device=scores.device) < lengths[:, None]
    weights = scores.masked_fill(~real[:, None], -torch.inf).softmax(dim=-1)
    # A padded value may be anything, NaN included, and 0 · NaN is NaN.
    value = value.masked_fill(~real[:, :, None], 0.0)
    return weights @ value, weights


class AdditiveAttention(nn.Module):
    """Additive scores with learned matrices (equation 6, appendix A.1.2)."""

    def __init__(self, query: int, key: int, alignment: int):
        super().__init__()
        self.query = nn.Linear(query, alignment, bias=False)
        self.key = nn.Linear(key, alignment, bias=False)
        self.v = nn.Parameter(torch.empty(alignment))
        nn.init.uniform_(self.v, -(alignment**-0.5), alignment**-0.5)

    def forward(
        self, query: Float[Tensor, "B T Dq"], keys: Float[Tensor, "B S A"]
    ) -> Float[Tensor, "B T S"]:
        """Return the scores of queries against keys already projected.

        U_a h does not depend on the step, so the paper (A.1.2) computes it once
        a sentence; `self.key(memory)` is the caller's.
        """
        return projected_scores(self.query(query), keys, self.v)


class BahdanauDecoder(nn.Module):
    """A decoder that attends *before* its recurrent step.

    c_i from s_{i-1}; then s_i = f(s_{i-1}, y_{i-1}, c_i); then y_i from s_i,
    y_{i-1} and c_i. The first state is tanh(W_s h) of the *backward* encoder
    state at the first symbol (A.2.2), the one that has read the whole source.

    Args:
        symbols: number of target symbols, the special ones included.
        embedding: width of a symbol's vector.
        hidden: width of the state.
        memory: width M of the encoder's memory (two directions).
        readout: width of the maxout layer.
        alignment: width A of the alignment model.
        recurrent: `nn.GRU` or `nn.LSTM`.
        dropout: share of embedding and readout entries dropped in training.
    """

    def __init__(
        self,
        symbols: int,
        embedding: int,
        hidden: int,
        memory: int,
        readout: int,
        alignment: int,
        recurrent: type[nn.RNNBase] = nn.GRU,
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
        self.readout = Readout(
            hidden + embedding + memory, readout, symbols, dropout
        )

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the first state, and the keys, projected once."""
        backward = memory.last[:, memory.last.shape[1] // 2 :]
        first = (torch.tanh(bridge(backward)) for bridge in self.bridges)
        return (*first, self.attention.key(memory.states))

    def forward(self, previous: Int[Tensor, "B T"], memory: Memory) -> Decoded:
        """Return logits and weights of every step, given the true previous."""
        *state, keys = self.start(memory)
        words = self.drop(self.embed(previous))
        steps = []
        for word in words.split(1, dim=1):
            output, looked, weights, state = self._turn(
                word, state, keys, memory
            )
            steps.append((output, looked, weights))
        outputs, contexts, weights = (
            torch.cat(x, dim=1) for x in zip(*steps, strict=True)
        )
        return Decoded(self.readout(outputs, words, contexts), weights)

    def step(
        self,
        previous: Int[Tensor, " B"],
        state: tuple[Tensor, ...],
        memory: Memory,
    ) -> tuple[Float[Tensor, "B V"], tuple[Tensor, ...], Float[Tensor, "B S"]]:
        """Return logits of the next symbol, the state after it, the weights."""
        *state, keys = state
        word = self.drop(self.embed(previous[:, None]))
        output, looked, weights, state = self._turn(word, state, keys, memory)
        logits = self.readout(output, word, looked)
        return logits[:, 0], (*state, keys), weights[:, 0]

    def _turn(self, word, state, keys, memory):
        scores = self.attention(state[0][:, None], keys)
        looked, weights = context(scores, memory.states, memory.lengths)
        output, state = advance(
            self.recurrent, torch.cat([word, looked], dim=-1), tuple(state)
        )
        return output, looked, weights, state
