"""The loss of a model that predicts the next token of a sequence.

Axes: B batch, T positions, V symbols
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

IGNORED_TARGET = -100


def compute_next_token_loss(logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"]):
    """Return the cross-entropy in nats over the targets that count."""
    return F.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED_TARGET
    )
