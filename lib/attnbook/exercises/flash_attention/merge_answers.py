"""What goes wrong where two parts of attention become one.

Axes: T queries, E value width
"""

import torch


def shares(lse_a, lse_b):
    """Return the weight of the first part; an empty pair has half."""
    return torch.sigmoid((lse_a - lse_b).nan_to_num(0.0))


def by(share=shares, lse=torch.logaddexp):
    """Return an answer with another share or logsumexp."""

    def answer(output_a, lse_a, output_b, lse_b):
        a = share(lse_a, lse_b)[..., None]
        return a * output_a + (1 - a) * output_b, lse(lse_a, lse_b)

    return answer


def unshifted(output_a, lse_a, output_b, lse_b):
    """Take exp of the logsumexps as they are."""
    a, b = lse_a.exp()[..., None], lse_b.exp()[..., None]
    total = a + b
    safe = total.masked_fill(total == 0, 1.0)
    return (a * output_a + b * output_b) / safe, total.log()[..., 0]


def by_maximum(divide=True, guard=True, log=True):
    """Return an answer that shifts by the larger logsumexp."""

    def answer(output_a, lse_a, output_b, lse_b):
        top = torch.maximum(lse_a, lse_b)
        low = top.masked_fill(top == -torch.inf, 0.0) if guard else top
        a, b = (lse_a - low).exp(), (lse_b - low).exp()
        mixed = a[..., None] * output_a + b[..., None] * output_b
        total = a + b
        safe = total.masked_fill(total == 0, 1.0) if guard else total
        if divide:
            mixed = mixed / safe[..., None]
        return mixed, (low + total.log()) if log else total.log()

    return answer


def covered(output_a, lse_a, output_b, lse_b):
    """Cover up NaN afterwards, and -inf with it."""
    output, lse = by_maximum(guard=False)(output_a, lse_a, output_b, lse_b)
    return output.nan_to_num(), lse.nan_to_num()


def by_ratio(lse_a, lse_b):
    """Take logsumexps for totals."""
    return lse_a / (lse_a + lse_b)
