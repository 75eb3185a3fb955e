"""Self-attention and heads: projections, paths, how many heads, which can go.

Axes: B batch, T positions, S items, H query heads, G groups, D width of a head,
    C model width, V colors or symbols
"""

from collections.abc import Callable
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.attention.self_attention import self_attention
from attnbook.models import lookup_models as task
from attnbook.models.devices import use_seed
from attnbook.models.lookup_models import (
    RELATIONS,
    RelationBatch,
    RelationModel,
    compute_gradient_norms_at_ends,
    draw_relation,
)
from attnbook.training.associative_recall import compute_error_rates, train
from attnbook.training.loop import optimize
from attnbook.training.run import load_trained
from attnbook.training.tasks import compute_error_rate, count_errors_by_length
from workshop.experiments.record import recorded, sweep

SEEDS, STEPS = (0, 1, 2), 600
COUNTS = (1, 2, 4, 8, 16, 32, 64)
WIDTH = 64


def build_model(seed: int, heads: int) -> task.AssociativeRecallModel:
    with use_seed(seed):
        return task.AssociativeRecallModel(heads)


def measure_error(model: task.AssociativeRecallModel, **tables) -> float:
    return float(compute_error_rates(model, **tables).mean())


@recorded(seeds=SEEDS)
def heads_lookups() -> dict:
    """Record errors by number of heads, at equal parameters."""

    def measure(heads: int, seed: int) -> dict:
        model = build_model(seed, heads)
        train(model, STEPS, seed)
        return {"error": measure_error(model)}

    return {"rows": sweep(measure, heads=COUNTS, seed=SEEDS)}


READOUT_STEPS, READOUT_RATE, READOUT_WIDTH = 4000, 3e-3, 512


@recorded(seeds=SEEDS)
def heads_readout() -> dict:
    """Record four lookups by one head whose average is read in two ways."""

    def measure(readout: str, seed: int) -> dict:
        model = build_model(seed, 1)
        if readout == "two layers":
            with use_seed(seed):
                model.answer = nn.Sequential(  # type: ignore[assignment]
                    nn.Linear(WIDTH, READOUT_WIDTH),
                    nn.ReLU(),
                    nn.Linear(READOUT_WIDTH, task.QUERIES * task.SYMBOLS),
                )
        train(model, READOUT_STEPS, seed, READOUT_RATE)
        tables = task.draw_tables(2000, torch.Generator().manual_seed(10**6))
        with torch.no_grad():
            _, weights = model(tables)
        there = tables.addresses[:, None] == tables.queries[:, :, None]  # (B, N, S)
        at = (weights * there).sum(-1).mean(0).tolist()  # the item of each place
        return {"error": measure_error(model), "weights": at}

    readouts = "one linear layer", "two layers"
    return {"rows": sweep(measure, readout=readouts, seed=SEEDS)}


# H, G and D. The parameters of the projections are 2 C D (H + G), the numbers
# cached for each item 2 G D.
SETTINGS = {
    "equal parameters": [(8, 8, 8), (12, 4, 8), (14, 2, 8), (15, 1, 8)],
    "equal cache": [(1, 1, 16), (2, 2, 8), (4, 4, 4), (8, 2, 8), (8, 1, 16)],
}


class FreeWidthAttention(GroupedQueryAttention):
    """Grouped-query attention without biases whose head width is free."""

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
    """Two queries name an item by its address, two by its position."""

    def __init__(self, heads: int, groups: int, columns: int):
        super().__init__(heads, groups, columns)
        self.position = nn.Embedding(task.ITEMS, WIDTH)

    def forward(self, tables: task.LookupTables) -> tuple[Tensor, Tensor]:
        positions = torch.arange(task.ITEMS)
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


@recorded(seeds=SEEDS)
def heads_shared() -> dict:
    """Record errors of multi-head, grouped-query and multi-query attention.

    Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245;
        one group: Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150.
        Departure: the width of a head is chosen freely, so that parameters or cache
        can be held equal.
    """

    def measure(task: str, setting: tuple[int, int, int], seed: int) -> dict:
        with use_seed(seed):
            model = MODELS[task](*setting)
        train(model, STEPS, seed)
        return {"error": measure_error(model)}

    settings = dict.fromkeys(chain(*SETTINGS.values()))
    rows = sweep(measure, task=MODELS, setting=settings, seed=SEEDS)
    return {"rows": rows, "settings": SETTINGS}


CHOICE_WORDS = 1000  # held-out words on which the next head is chosen
CHOICE_SEED = 2 * 10**6  # of the tables on which it is chosen


def prune_greedily(
    output: nn.Linear,
    heads: int,
    choose: Callable[[], float],
    test: Callable[[], float],
) -> dict[str, list]:
    """Return the test errors while the head that `choose` misses least is removed."""
    kept = output.weight.detach().clone()

    @torch.no_grad()
    def measure_without(gone: set[int], measure: Callable[[], float]) -> float:
        output.weight.unflatten(1, (heads, -1))[:, sorted(gone)] = 0
        found = measure()
        output.weight.copy_(kept)
        return found

    gone: set[int] = set()
    curve = [{"error": test()}]
    while len(gone) < heads:
        left = {*range(heads)} - gone
        gone.add(min(left, key=lambda h: measure_without(gone | {h}, choose)))
        curve.append({"error": measure_without(gone, test)})
    return {"curve": curve}


def prune_pronunciation(seed: int, heads: int = 8) -> dict:
    model, data, _ = load_trained(f"cmudict_heads_{heads}_{seed}")

    def measure(pairs) -> float:
        found = [data.targets.decode(f.ids) for f in data.generate(model, pairs)]
        return compute_error_rate(count_errors_by_length(found, pairs))

    return {"seed": seed} | prune_greedily(
        model.decoder.attention.attention.output,
        heads,
        lambda: measure(data.splits.valid[:CHOICE_WORDS]),
        lambda: measure(data.splits.test),
    )


def prune_lookups(seed: int, heads: int = 8) -> dict:
    model = build_model(seed, heads)
    train(model, STEPS, seed)
    choose = partial(measure_error, model, seed=CHOICE_SEED)
    output = model.attention.output
    return {"seed": seed} | prune_greedily(
        output, heads, choose, partial(measure_error, model)
    )


@recorded(seeds=SEEDS)
def heads_pruning() -> dict:
    """Record what removing heads costs three trained models of two tasks.

    Source: Michel et al. (2019), sections 3 and 4,
        https://arxiv.org/abs/1905.10650. Departure: the greedy order is found by
        removing every remaining head in turn, not from gradients.
    """
    return {
        "words": [*map(prune_pronunciation, SEEDS)],
        "lookups": [*map(prune_lookups, SEEDS)],
    }


NAMES, COLORS, PROJECTION_WIDTH, BATCH, RATE = 8, 5, 32, 64, 5e-3
PROJECTION_STEPS, PROJECTION_SEEDS = 4000, range(5)


def flip_half_of_key(
    x: Tensor, W_query: Tensor, W_key: Tensor, W_value: Tensor
) -> Tensor:
    """Return self-attention whose keys are queries, half of them negated.

    The scores are symmetric, as with equal matrices, but a position's score with itself
    may be small or negative.
    """
    signs = torch.ones_like(W_query[:, :1])
    signs[::2] = -1
    return self_attention(x, W_query, signs * W_query, W_value)


# Versions of self-attention, by their projections.
PROJECTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "three projections": self_attention,
    "W_q = W_k": lambda x, query, key, value: self_attention(x, query, query, value),
    "W_k = W_q, half negated": flip_half_of_key,
}


def train_relation(version: str, relation: str, seed: int) -> dict[str, list[float]]:
    with use_seed(seed):
        model = RelationModel(NAMES, COLORS, PROJECTION_WIDTH, PROJECTIONS[version])
    rng = torch.Generator().manual_seed(seed)
    held_out = draw(relation, 1000, torch.Generator().manual_seed(1000 + seed))

    def compute_loss(batch: RelationBatch) -> torch.Tensor:
        logits = model(batch.names, batch.colors)
        return F.cross_entropy(logits.flatten(0, 1), batch.answer.flatten())

    batches = (draw(relation, BATCH, rng) for _ in range(PROJECTION_STEPS))
    optimize(torch.optim.Adam(model.parameters(), lr=RATE), batches, compute_loss)
    with torch.no_grad():
        logits = model(held_out.names, held_out.colors)
    return {"errors": [float((logits.argmax(-1) != held_out.answer).double().mean())]}


def draw(relation: str, count: int, rng: torch.Generator) -> RelationBatch:
    return draw_relation(count, NAMES, COLORS, RELATIONS[relation], rng)


@recorded(seeds=PROJECTION_SEEDS)
def projections() -> dict:
    """Record the errors of every version on both relations.

    Each version is trained to find a name's successor in a circle, and to find its
    partner in a pair. Only the first relation has a direction.
    """
    axes = {"relation": RELATIONS, "version": PROJECTIONS, "seed": PROJECTION_SEEDS}
    return {"runs": sweep(train_relation, **axes)}


LENGTHS, PATH_SEEDS, PATH_WIDTH = (2, 4, 8, 16, 32, 64, 128, 256, 512), range(5), 64


class SelfAttentionLayer(nn.Module):
    """One layer of self-attention with the interface of `nn.GRU`."""

    def __init__(self, width: int, *_: int, batch_first: bool):
        super().__init__()
        self.projections = nn.Parameter(torch.randn(3, width, width) / width**0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self_attention(x, *self.projections), None


LAYERS: dict[str, type[nn.Module]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "attention": SelfAttentionLayer,
}


def measure_gradient_norm(kind: str, length: int, seed: int) -> float:
    """Return how much the first input changes the last output, in float64."""
    with use_seed(seed):
        model = LAYERS[kind](PATH_WIDTH, PATH_WIDTH, batch_first=True).double()
        x = torch.randn(8, length, PATH_WIDTH, dtype=torch.float64)
        upstream = torch.randn(8, PATH_WIDTH, dtype=torch.float64)
    return compute_gradient_norms_at_ends(model, x, upstream)[0]


@recorded(seeds=PATH_SEEDS, lengths=LENGTHS)
def path_length() -> dict:
    """Record the gradient of the last output at the first position.

    Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
        https://arxiv.org/abs/1706.03762; the experiments are ours.
    """
    norms = {
        kind: [[measure_gradient_norm(kind, n, x) for x in PATH_SEEDS] for n in LENGTHS]
        for kind in LAYERS
    }
    return {"first": norms}
