"""What goes wrong in a softmax of scores that come in chunks.

Axes: T queries, n scores of a chunk
"""

import torch
from torch import Tensor


def step(
    rescale=lambda old, new: (old - new).exp(),
    higher=torch.maximum,
    best=lambda chunk: chunk.amax(-1),
    weigh=lambda chunk, top: (chunk - top[:, None]).exp().sum(-1),
    start=-torch.inf,
    end=lambda top, total: (top, total),
):
    """Return an answer with some of its lines replaced.

    Args:
        rescale: the factor of what was summed before.
        higher: the new maximum, from the old one and the chunk's.
        best: the chunk's maximum.
        weigh: what a chunk adds.
        start: the maximum before the first chunk.
        end: what is returned.
    """

    def answer(chunks):
        top, total = torch.tensor(start), torch.tensor(0.0)
        for chunk in chunks:
            now = higher(top.to(chunk.dtype), best(chunk))
            low = now.masked_fill(now == -torch.inf, 0.0)
            total = total * rescale(top, low) + weigh(chunk, low)
            top = now
        return end(top, total)

    return answer


def both_rescaled(chunks):
    """Rescale the chunk's own sum along with the old one."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        now = torch.maximum(top, chunk.amax(-1))
        low = now.masked_fill(now == -torch.inf, 0.0)
        total = total + (chunk - low[:, None]).exp().sum(-1)
        total, top = total * (top - low).exp(), now
    return top, total


def shifted_by_own(chunks):
    """Shift each chunk by its own maximum, and add up."""
    tops, totals = [], []
    for chunk in chunks:
        top = chunk.amax(-1)
        low = top.masked_fill(top == -torch.inf, 0.0)
        tops.append(top)
        totals.append((chunk - low[:, None]).exp().sum(-1))
    return torch.stack(tops).amax(0), torch.stack(totals).sum(0)


def unguarded(chunks):
    """Leave -inf - -inf as it is."""
    top, total = torch.tensor(-torch.inf), torch.tensor(0.0)
    for chunk in chunks:
        now = torch.maximum(top, chunk.amax(-1))
        total = total * (top - now).exp() + (chunk - now[:, None]).exp().sum(-1)
        top = now
    return top, total


def twice_read(chunks):
    """Read for the maximum, then read again for the total."""
    top = torch.stack([chunk.amax(-1) for chunk in chunks]).amax(0)
    low, total = top.masked_fill(top == -torch.inf, 0.0), torch.zeros_like(top)
    for chunk in chunks:
        total = total + (chunk - low[:, None]).exp().sum(-1)
    return top, total


def joined(answer):
    """Return an answer that first puts all chunks side by side."""
    return lambda chunks: answer([torch.cat(list(chunks), -1)])


def raw(top: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Bring a sum of unshifted powers to the maximum, when it is too late."""
    low = top.masked_fill(top == -torch.inf, 0.0)
    return top, total * (-low).exp()
