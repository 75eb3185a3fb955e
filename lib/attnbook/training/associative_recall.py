"""Training and testing the model of associative recall.

Axes: B batch, H heads, S items in the table, N addresses in a query
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnbook.models.devices import find_device, use_seed
from attnbook.models.lookup_models import (
    AssociativeRecallModel,
    LookupTables,
    draw_tables,
)
from attnbook.training.loop import optimize

BATCH = 128  # tables


def train(
    model: AssociativeRecallModel, steps: int, seed: int, rate: float = 1e-2
) -> None:
    """Train on newly drawn tables; the learning rate decreases linearly to 0.

    The tables are drawn on the CPU and moved to the model's device.

    Args:
        model: the model; it is in evaluation mode afterwards.
        steps: number of optimizer steps.
        seed: of the tables and of dropout.
        rate: the learning rate at the start.
    """
    rng, device = torch.Generator().manual_seed(seed), find_device(model)

    def compute_loss(tables: LookupTables) -> Float[Tensor, ""]:
        logits = model(tables)[0].flatten(0, 1)
        return F.cross_entropy(logits, tables.answers.flatten())

    with use_seed(seed, device):
        model.train()
        optimize(
            torch.optim.Adam(model.parameters(), lr=rate),
            (draw_tables(BATCH, rng).to(device) for _ in range(steps)),
            compute_loss,
            lambda step: rate * (1 - step / steps),
        )
    model.eval()


@torch.no_grad()
def compute_error_rates(
    model: AssociativeRecallModel, count: int = 2000, seed: int = 10**6
) -> Float[Tensor, " N"]:
    """Return the error rate of each answer, on tables not used in training.

    Args:
        model: the model.
        count: number of tables.
        seed: of the tables; at least 10**6, so that training uses others.
    """
    tables = draw_tables(count, torch.Generator().manual_seed(seed))
    tables = tables.to(find_device(model))
    logits, _ = model(tables)
    return (logits.argmax(-1) != tables.answers).double().mean(dim=0)
