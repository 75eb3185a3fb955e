"""What goes wrong in attention by tiles, beside single lines of it.

Axes: T queries, S keys
"""

import torch


def at_once(query, key, value, block):
    """Make all scores, as the standard version does."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def strips(query, key, value, block):
    """Divide only the queries: each chunk has an ordinary softmax."""
    found = [at_once(q, key, value, block) for q in query.split(block, -2)]
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def nothing(old, new):
    """Return the factor 1, which does not rescale."""
    return torch.ones_like(new)


def inverse(old, new):
    """Return the factor the wrong way round."""
    return (new - old).masked_fill(old == -torch.inf, 0.0).exp()


def unshifted(scores, top):
    """Return weights without the shift."""
    return scores.exp()


def running_mean(query, key, value, block):
    """Divide by the total so far in every tile, and never undo it."""
    scale, found = query.shape[-1] ** -0.5, []
    for q in (query * scale).split(block, -2):
        top, total, output = q.new_full(q.shape[:-1], -torch.inf), 0.0, 0.0
        for k, v in zip(
            key.split(block, -2), value.split(block, -2), strict=True
        ):
            scores = q @ k.mT
            now = torch.maximum(top, scores.amax(-1))
            factor = (top - now).exp()
            weights = (scores - now[..., None]).exp()
            total = total * factor + weights.sum(-1)
            output = output * factor[..., None] + weights @ v
            output, top = output / total[..., None], now
        found.append((output, top + total.log()))
    outputs, sums = zip(*found, strict=True)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def mean_of_tiles(query, key, value, block):
    """Let every tile have its own softmax, and take the mean of the tiles."""
    scaled, k = query * query.shape[-1] ** -0.5, key.split(block, -2)
    parts, sums = [], []
    for rows in scaled.split(block, -2):
        each = [
            (rows @ x.mT).softmax(-1) @ v
            for x, v in zip(k, value.split(block, -2), strict=True)
        ]
        parts.append(torch.stack(each).mean(0))
        each = [(rows @ x.mT).logsumexp(-1) for x in k]
        sums.append(torch.stack(each).logsumexp(0))
    return torch.cat(parts, -2), torch.cat(sums, -1)
