"""Packed sequences: several documents in one row, each with its own positions.

`attnbook.masks.document` keeps documents from attending to one another. Their
positions must restart as well; otherwise, a document would get other position
vectors depending on where in the row it is packed.

Axes: B batch, T positions
"""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F


def reset_positions(ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return positions that restart at 0 wherever the document changes.

    >>> reset_positions(torch.tensor([[0, 0, 0, 1, 1, 2]])).tolist()
    [[0, 1, 2, 0, 1, 0]]

    Args:
        ids: the number of each token's document.
    """
    index = torch.arange(ids.shape[1], device=ids.device)
    changes = ids[:, 1:] != ids[:, :-1]
    first = F.pad(changes, (1, 0), value=True)
    start = torch.where(first, index, 0).cummax(dim=1).values
    return index - start
