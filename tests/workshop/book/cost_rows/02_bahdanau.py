"""Chapter 2: additive attention."""

import torch

from attnbook.attention.recurrent import AdditiveAttention, context


def call_additive(n):
    query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
    score, lengths = AdditiveAttention(n.Dq, n.M, n.A), torch.tensor([n.S])

    def call():
        return context(score(query, score.key(states)), states, lengths)

    return call, score.parameters()


CALLS = {"additive": call_additive}
