"""Wrong answers to the exercises of chapters/15_reading_heads."""

import copy

import torch

from attnbook.diagnose.heads import mark_induction, score_induction
from attnbook.diagnose.rollout import attention_rollout
from attnbook.exercises import reading_heads as checks
from attnbook.exercises.reading_heads.ablate_head import ablate_head
from attnbook.exercises.reading_heads.ablation_fault import ablation_fault
from attnbook.exercises.reading_heads.score_counts import score_counts
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

INDUCTION = Answers(checks.check_induction_score, make.in_double)
INDUCTION += (
    Wrong(
        "shape",
        "one score for all heads together",
        "one head",
        lambda weights, ids: score_induction(weights, ids).mean(),
    ),
    Wrong(
        "shape",
        "an axis is kept for plotting",
        "every number, broadcast",
        lambda weights, ids: score_induction(weights, ids)[:, None],
    ),
    Wrong(
        "type",
        "a list of Python's numbers",
        "every number",
        lambda weights, ids: score_induction(weights, ids).tolist(),
    ),
)


@INDUCTION.wrong("numbers", "a block that is repeated once")
def half_of_the_sequence(weights, ids):
    """The second half is compared with the first, as if it were a copy."""
    half = len(ids) // 2
    marked = torch.zeros(len(ids), len(ids), dtype=torch.bool)
    for t in range(half, 2 * half):
        marked[t, t - half + 1] = True
    return (weights * marked).sum((1, 2)) / max(half, 1)


@INDUCTION.wrong("numbers", "one repeated token")
def weights_of_the_last_query(weights, ids):
    """Only the last position is scored."""
    return (weights[:, -1] * mark_induction(ids)[-1]).sum(-1)


ROLLOUT = Answers(checks.check_attention_rollout, make.in_double)
ROLLOUT += (
    Wrong(
        "shape",
        "a batch axis is added",
        "every number, broadcast",
        lambda weights: attention_rollout(weights)[None],
    ),
    Wrong(
        "type",
        "the rollouts of all layers, as a list",
        "the last entry of the list",
        lambda weights: [
            attention_rollout(weights[: i + 1]) for i in range(len(weights))
        ],
    ),
    Wrong(
        "numbers",
        "the identity is taken away from the result, to show attention only",
        "what is not on the diagonal",
        lambda weights: attention_rollout(weights) - torch.eye(weights.shape[-1]),
    ),
)


@ROLLOUT.wrong("numbers", "one head")
def each_head_apart(weights):
    """Each head has a rollout of its own, and their mean is returned."""
    heads = [attention_rollout(w[:, None]) for w in weights.unbind(1)]
    return torch.stack(heads).mean(0)


ABLATE = Answers(checks.check_ablate_head)
ABLATE += (
    Wrong(
        "type",
        "the changed layer is returned instead of the model",
        "the layer",
        lambda model, layer, head: (
            ablate_head(model, layer, head).blocks[layer].attention.output.weight
        ),
    ),
    Wrong(
        "error",
        "the returned layer does not take token ids",
        "the layer",
        lambda model, layer, head: ablate_head(model, layer, head).blocks[layer],
    ),
    Wrong(
        "type",
        "the weights are returned, to be loaded later",
        "every weight",
        lambda model, layer, head: ablate_head(model, layer, head).state_dict(),
    ),
    Wrong(
        "changed-model",
        "the given model is changed, and a copy from before is returned",
        "a model that works",
        lambda model, layer, head: (
            copy.deepcopy(model),
            model.blocks[layer].attention.output.weight.data.zero_(),
        )[0],
    ),
)


@ABLATE.wrong("numbers", "the first head")
def ablates_head_0(model, layer, head):
    """The number of the head is not used."""
    return ablate_head(model, layer, 0)


@ABLATE.wrong("numbers", "a head without any others")
def ablates_keys(model, layer, head):
    """The keys of the head's group are set to zero."""
    ablated = copy.deepcopy(model)
    attention = ablated.blocks[layer].attention
    width = attention.output.in_features // attention.heads
    group = head * attention.groups // attention.heads
    attention.key.weight.data[group * width : (group + 1) * width] = 0.0
    return ablated


COUNTS = Answers(checks.check_score_counts, make.without_the_last)
COUNTS += (
    Wrong(
        "type",
        "the score is returned with the counts, as text",
        "every count",
        lambda *sizes: [*score_counts(*sizes), "score"],
    ),
    Wrong(
        "numbers",
        "the counts are divided, so that they are scores",
        "the number of positions",
        lambda *sizes: [
            n / max(score_counts(*sizes)[0], 1) if i else n
            for i, n in enumerate(score_counts(*sizes))
        ],
    ),
)


@COUNTS.wrong("numbers", "two copies, and no distance beyond a block")
def counts_two_copies(block, copies, before, distance):
    """There are always two copies."""
    return score_counts(block, 2, before, distance)


@COUNTS.wrong("numbers", "distances of induction and of duplicate tokens")
def formulas_without_start(block, copies, before, distance):
    """Whole blocks are counted, and the positions near the start forgotten."""
    later = block * (copies - 1)
    after, same = distance % block == block - 1, distance % block == 0
    length = before + block * copies
    return [later, later * after, later * same, (length - 1) * (distance == 1)]


FAULT = Answers(checks.check_ablation_fault, *make.DECISION)


@FAULT.wrong("error", "nothing")
def fault_of_a_head_that_is_not_there(layer, x, heads):
    """Heads are counted from 1."""
    return int(layer(x, [heads]).isnan().any())


@FAULT.wrong("numbers", "every fault")
def fault_of_the_right_one(layer, x, heads):
    """A right layer is taken for one whose other heads are scaled up."""
    return ablation_fault(layer, x, heads) or 2


@FAULT.wrong("numbers", "an ablation that stays")
def fault_by_repetition(layer, x, heads):
    """Only whether the intact layer stays the same is tried."""
    before = layer(x, [])
    layer(x, [0])
    return 0 if torch.equal(layer(x, []), before) else 5


KIND = Answers(checks.check_head_kind, *make.DECISION)


@KIND.wrong("error", "nothing")
def kind_of_a_long_sequence(head, ids):
    """A sequence of 200 tokens is tried."""
    return int(head([5] * 200)[-1] == 0)


@KIND.wrong("numbers", "most distances, and duplicate tokens")
def kind_from_the_end_of_the_example(head, ids):
    """Only the last position of the example is looked at."""
    found, half = head(ids)[-1], len(ids) // 2
    return {half: 0, half - 1: 1, 0: 4}.get(found, 2)


@KIND.wrong("numbers", "induction and duplicate tokens")
def kind_of_two_only(head, ids):
    """Only duplicate tokens are told from induction."""
    return 1 if head([9, 1, 2, 3, 1, 5])[4] == 1 else 0


ANSWERS = collect_answers(checks, vars())
