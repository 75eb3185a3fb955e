"""Chapter 3: the scores of Luong, local attention, additive in blocks."""

import torch

from attnbook.attention import recurrent
from attnbook.attention.recurrent import additive_scores_in_blocks, context
from cost_calls import call_memory


def call_in_blocks(n):
    query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
    given = torch.randn(n.A, n.Dq), torch.randn(n.A, n.M), torch.randn(n.A)

    def call():
        scores = additive_scores_in_blocks(query, states, *given, n.R)
        return context(scores, states, torch.tensor([n.S]))

    return call, given


def call_global(score):
    return call_memory(lambda n: recurrent.GlobalAttention(score(n)))


CALLS = {
    "additive, in blocks": call_in_blocks,
    "dot": call_global(lambda n: recurrent.DotScore(n.M, n.M)),
    "general": call_global(lambda n: recurrent.GeneralScore(n.Dq, n.M)),
    "concat": call_global(lambda n: recurrent.ConcatScore(n.Dq, n.M, n.A)),
    "location": call_global(lambda n: recurrent.LocationScore(n.Dq, n.S)),
    "local, monotonic": call_memory(
        lambda n: recurrent.MonotonicAttention(recurrent.GeneralScore(n.Dq, n.M), n.r)
    ),
    "local, predictive": call_memory(
        lambda n: recurrent.PredictiveAttention(
            recurrent.GeneralScore(n.Dq, n.M), n.Dq, n.A, n.r
        )
    ),
}
SIZES = {"dot": lambda n: {"Dq": n["M"]}}
