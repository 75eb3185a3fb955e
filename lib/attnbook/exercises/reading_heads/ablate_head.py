"""Exercise: a model without one of its heads.

Source: Michel, Levy and Neubig (2019), section 2,
    https://arxiv.org/abs/1905.10650
Axes: B batch, T positions, C model width, H heads, D = C / H width of a head
"""

import copy
from typing import Any

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder

SYMBOLS = 11


def ablate_head(model: ModernDecoder, layer: int, head: int) -> ModernDecoder:
    """Return a copy of a decoder in which one head contributes nothing.

    Args:
        model: is not changed.
        layer: the block, counted from 0.
        head: the head, counted from 0.
    """
    ablated = copy.deepcopy(model)
    attention: Any = ablated.blocks[layer].attention
    output = attention.output  # its input: the heads' outputs side by side
    width = output.in_features // attention.heads
    first = head * width
    with torch.no_grad():
        output.weight[:, first : first + width] = 0.0
    return ablated


def make_model(
    rng: torch.Generator, heads: int, groups: int, width: int, blocks: int
) -> ModernDecoder:
    """Return a decoder with random weights, in which every head matters."""
    config = DecoderConfig(SYMBOLS, heads * width, heads, groups, 6, blocks)
    with torch.random.fork_rng():
        model = ModernDecoder(config).eval()
    with torch.no_grad():
        for matrix in model.parameters():
            if matrix.dim() == 2:
                scale = matrix.shape[1] ** -0.5
                matrix.copy_(scale * draw_normal(rng, *matrix.shape))
    return model


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One block of two heads; every head of a layer; shared keys and values."""
    probe = (draw_integers(rng, 0, SYMBOLS - 1, 2, 7),)

    def case(tries: str, sizes: tuple[int, ...], layer: int, head: int) -> Case:
        inputs = make_model(rng, *sizes), layer, head
        return Case(tries, inputs, probe=probe)

    return (
        case("with one block of two heads", (2, 2, 2, 1), 0, 0),
        case("with the second of two heads", (2, 2, 2, 1), 0, 1),
        case("with the second of three blocks", (3, 3, 2, 3), 1, 1),
        case("with the last head of the last block", (4, 4, 4, 2), 1, 3),
        case("with two heads in a group", (4, 2, 2, 2), 0, 1),
        case("with one group of three heads", (3, 1, 4, 2), 1, 0),
        case("with the only head of a block", (1, 1, 4, 2), 0, 0),
    )


def ablate_by_hook(model: ModernDecoder, layer: int, head: int) -> ModernDecoder:
    """Return the given model, with a hook that stays."""
    attention: Any = model.blocks[layer].attention
    width = attention.output.in_features // attention.heads

    def hook(module, given):
        kept = torch.ones_like(given[0])
        kept[..., head * width : (head + 1) * width] = 0.0
        return given[0] * kept

    attention.output.register_forward_pre_hook(hook)
    return model


ZEROED = "output.weight[:, first : first + width] = 0.0"

check_ablate_head = Exercise(
    title="a model without one of its heads",
    stars=2,
    minutes=15,
    section="Ablation: what does the model lose without a head?",
    solution=ablate_head,
    returns=("logits", "logits_of_the_given_model"),
    draw=draw,
    allowed="Everything is allowed; `attnbook.models.head_edits` helps.",
    forbidden=frozenset(),
    key_line=ZEROED,
    mistakes=(
        Mistake(
            "changed-in-place",
            "given model changed",
            "the weights of the given model are changed. Every later "
            "measurement of that model is then one of the ablated model; "
            "change a deep copy",
            "copy.deepcopy(model) → model",
        ),
        Mistake(
            "hook-stays",
            "hook on the given model",
            "the head is removed by a hook on the given model. The hook stays, "
            "so the given model has lost the head as well",
            ablate_by_hook,
        ),
        Mistake(
            "not-ablated",
            "nothing removed",
            "the returned model computes the same as the given one: the head "
            "still contributes",
            "= 0.0 → *= 1.0",
        ),
        Mistake(
            "rows",
            "rows of the output projection",
            "rows of the output projection are set to zero. They belong to "
            "columns of the layer's output; the head's output enters "
            "through columns of the matrix",
            "weight[:, first → weight[first",
        ),
        Mistake(
            "whole-layer",
            "all heads of the layer removed",
            "all heads of the layer are removed",
            "first : first + width → :",
        ),
        Mistake(
            "all-layers",
            "head removed in all layers",
            "the head of this number is removed in all layers; it should be "
            "removed in one",
            lambda model, layer, head: ablate_everywhere(model, head),
        ),
        Mistake(
            "previous-head",
            "heads counted from 1",
            "the head before is removed: heads are counted from 0",
            "head * width → (head - 1) % attention.heads * width",
        ),
        Mistake(
            "previous-layer",
            "layers counted from 1",
            "the head is removed in the layer before: layers are counted from 0",
            "[layer] → [layer - 1]",
        ),
        Mistake(
            "interleaved",
            "columns of all heads mixed",
            "every H-th column is set to zero, so that each head loses some of "
            "its columns. The columns of one head lie side by side",
            "first : first + width → head :: attention.heads",
        ),
        Mistake(
            "uniform-weights",
            "uniform weights instead of no output",
            "the head's queries or scores are set to zero. Its weights are "
            "then uniform, and it still contributes the average of the values",
            "output.weight[:, first → attention.query.weight[first",
        ),
        Mistake(
            "shared-values",
            "values of the whole group removed",
            "the values are set to zero. The other heads of the group use the "
            "same values and are removed as well",
            (
                "head * → head * attention.groups // attention.heads *",
                "output.weight[:, first → attention.value.weight[first",
            ),
        ),
        Mistake(
            "others-removed",
            "all other heads removed",
            "all other heads are removed, and the head itself is kept",
            f"{ZEROED} → heads = torch.arange(output.in_features) // width; "
            "output.weight *= heads == head",
        ),
        Mistake(
            "others-scaled",
            "other heads scaled up",
            "the other heads are multiplied by H / (H - 1) to make up for the "
            "head, as dropout does; they should stay as they are",
            "= 0.0 → = 0.0; "
            "output.weight *= attention.heads / max(attention.heads - 1, 1)",
        ),
        Mistake(
            "width-of-a-group",
            "width divided by the number of groups",
            "the width of a head is computed as C divided by the number of "
            "groups; it is C divided by the number of heads",
            "in_features // attention.heads → in_features // attention.groups",
        ),
    ),
)


def ablate_everywhere(model: ModernDecoder, head: int) -> ModernDecoder:
    """Return a copy in which all layers lose the head of a number."""
    for layer in range(len(model.blocks)):
        model = ablate_head(model, layer, head)
    return model
