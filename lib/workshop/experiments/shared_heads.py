"""Recorded runs: shared keys and values at equal parameters and equal cache.

Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245;
    one group: Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150.
    Departure: the width of a head is chosen freely, so that parameters or cache
    can be held equal.
Axes: B batch, S items, H query heads, G groups, D width of a head, C model
    width
"""

from itertools import chain

import torch
from torch import Tensor, nn

from attnbook.attention.grouped_query import GroupedQueryAttention
from attnbook.models import associative_recall as task
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.training.associative_recall import compute_error_rate, train
from workshop.experiments.device import get_device
from workshop.experiments.heads import SEEDS, STEPS
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

WIDTH = 64
# H, G and D. The parameters of the projections are 2 C D (H + G), the numbers
# cached for each item 2 G D.
SETTINGS = {
    "equal parameters": [(8, 8, 8), (12, 4, 8), (14, 2, 8), (15, 1, 8)],
    "equal heads": [(8, 8, 8), (8, 4, 8), (8, 2, 8), (8, 1, 8)],
    "equal cache": [
        (1, 1, 16), (2, 2, 8), (4, 4, 4), (8, 2, 8), (8, 1, 16),
    ],
}  # fmt: skip


class FreeWidthAttention(GroupedQueryAttention):
    """Grouped-query attention without biases whose head width is free.

    Args:
        width: C, of input and output.
        heads: H.
        groups: G.
        columns: D.
    """

    def __init__(self, width: int, heads: int, groups: int, columns: int):
        super().__init__(heads * columns, heads, groups, bias=False)
        self.query = nn.Linear(width, heads * columns, bias=False)
        self.key = nn.Linear(width, groups * columns, bias=False)
        self.value = nn.Linear(width, groups * columns, bias=False)
        self.output = nn.Linear(heads * columns, width, bias=False)


class SharedLookupModel(task.AssociativeRecallModel):
    """The model of several lookups with attention of any H, G and D."""

    def __init__(self, heads: int, groups: int, columns: int):
        super().__init__(1, WIDTH)
        self.attention = FreeWidthAttention(WIDTH, heads, groups, columns)


class TwoHeadSizesModel(SharedLookupModel):
    """Two queries name an item by its address, two by its position.

    The task is the same; only what the model reads differs.
    """

    def __init__(self, heads: int, groups: int, columns: int):
        super().__init__(heads, groups, columns)
        self.position = nn.Embedding(task.ITEMS, WIDTH)

    def forward(self, tables: task.LookupTables) -> tuple[Tensor, Tensor]:
        """Return logits of each answer, and each head's weights."""
        positions = torch.arange(task.ITEMS, device=tables.addresses.device)
        items = self.address(tables.addresses) + self.symbol(tables.symbols)
        items = items + self.position(positions)
        found = tables.addresses[:, None] == tables.queries[:, 2:, None]
        asked = [*tables.queries[:, :2].unbind(1)]
        asked += found.int().argmax(-1).unbind(1)
        parts = zip(self.query_embeddings, asked, strict=True)
        question = sum(embed(which) for embed, which in parts)[:, None]
        context, weights = self.attention(question, items, need_weights=True)
        logits = self.answer(context[:, 0])
        return logits.unflatten(1, (task.QUERIES, -1)), weights[:, :, 0]


MODELS = {"one kind of key": SharedLookupModel, "two kinds": TwoHeadSizesModel}


@experiment()
@recorded(seeds=SEEDS)
def heads_shared() -> dict:
    """Record errors of multi-head, grouped-query and multi-query attention."""
    rows = []
    for kind, build in MODELS.items():
        for setting in dict.fromkeys(chain(*SETTINGS.values())):
            for seed in SEEDS:
                with use_seed(seed):
                    model = build(*setting).to(get_device())
                train(model, STEPS, seed)
                rows.append(
                    {
                        "task": kind,
                        "setting": setting,
                        "seed": seed,
                        "parameters": count_parameters(model.attention),
                        "cache": 2 * setting[1] * setting[2],
                        "error": compute_error_rate(model),
                    }
                )
    return {"rows": rows, "settings": SETTINGS, "steps": STEPS}
