"""Wrong answers to the exercises of chapters/16_beyond_text."""

import torch
from torch.nn import functional as F

from attnbook.attention.gated_cross_attention import gated_cross_attention
from attnbook.exercises import beyond_text as checks
from attnbook.exercises.beyond_text.graph_attention import graph_attention
from attnbook.exercises.beyond_text.graph_fault import graph_fault
from attnbook.exercises.beyond_text.map_kind import map_kind
from attnbook.exercises.beyond_text.space_time_counts import space_time_counts
from attnbook.models.patches import cut_patches
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

PATCHES = Answers(checks.check_patches, make.detached, make.in_double)
PATCHES += (
    Wrong(
        "shape",
        "the grid of patches is kept for plotting",
        "every number",
        lambda images, size: cut_patches(images, size).unflatten(
            1, (images.shape[2] // size, -1)
        ),
    ),
    Wrong(
        "shape",
        "the patches of all images are put into one long batch",
        "every number",
        lambda images, size: cut_patches(images, size).flatten(0, 1),
    ),
)


@PATCHES.wrong("shape", "patches of one pixel")
def patches_that_overlap(images, size):
    """`unfold` without a stride moves by one pixel."""
    return F.unfold(images, size).mT


GRAPH = Answers(checks.check_graph_attention, make.detached, make.in_double)


@GRAPH.wrong("error", "graphs with as many features as nodes")
def graph_of_rows(features, edges, weight, a):
    """Edges are expected in rows (E, 2), as NetworkX lists them."""
    return graph_attention(features, edges.T, weight, a)


@GRAPH.wrong("numbers", "the weights of edges into different nodes")
def graph_without_weights(features, edges, weight, a):
    """All edges into a node have the same weight: a mean."""
    return graph_attention(features, edges, weight, torch.zeros_like(a))


@GRAPH.wrong("numbers", "everything but the last step")
def graph_with_elu(features, edges, weight, a):
    """The nonlinearity that follows in the paper is applied."""
    return F.elu(graph_attention(features, edges, weight, a))


GATED = Answers(checks.check_gated_cross_attention, make.detached, make.in_double)


@GATED.wrong("type", "every number")
def gated_with_gate(text, image, W_query, W_key, W_value, gate):
    """The value of the gate is returned as well, to be plotted."""
    args = text, image, W_query, W_key, W_value, gate
    return gated_cross_attention(*args), gate.tanh()


@GATED.wrong("numbers", "a gate that is positive or zero")
def gated_by_size(text, image, W_query, W_key, W_value, gate):
    """Negative gates are taken for positive ones."""
    args = text, image, W_query, W_key, W_value, gate.abs()
    return gated_cross_attention(*args)


@GATED.wrong("numbers", "one position of the image")
def gated_first_image(text, image, W_query, W_key, W_value, gate):
    """The first image is used for the whole batch."""
    image = image[:1].expand_as(image).flip(1)
    image = image + 0 * text.mean()
    return text + gate.tanh() * F.softmax(
        text @ W_query.T @ (image @ W_key.T).mT, -1
    ) @ (image @ W_value.T)


COUNTS = Answers(checks.check_space_time_counts, make.without_the_last)
COUNTS += (
    Wrong(
        "type",
        "the counts are returned with a word",
        "every count",
        lambda *sizes: [*space_time_counts(*sizes), "scores"],
    ),
    Wrong(
        "numbers",
        "the scores are divided by those of joint attention",
        "the tokens",
        lambda *sizes: [
            n / space_time_counts(*sizes)[1] if i else n
            for i, n in enumerate(space_time_counts(*sizes))
        ],
    ),
)


@COUNTS.wrong("numbers", "a causal layer whose order does not matter")
def counts_of_causal_joint(frames, height, width, size):
    """Joint attention is counted as if it were causal, token by token."""
    found = space_time_counts(frames, height, width, size)
    return [found[0], found[0] * (found[0] + 1) // 2, *found[2:]]


FAULT = Answers(checks.check_graph_fault, *make.DECISION)


@FAULT.wrong("error", "nothing")
def fault_of_a_node_that_is_not_there(layer, features, edges):
    """An edge leads to one node more than the graph has."""
    return int(layer(features, edges + len(features)).isnan().any())


@FAULT.wrong("numbers", "every fault")
def fault_of_the_right_one(layer, features, edges):
    """A right layer is taken for one with equal weights."""
    return graph_fault(layer, features, edges) or 5


KIND = Answers(checks.check_map_kind, *make.DECISION)


@KIND.wrong("error", "nothing")
def kind_of_a_colored_picture(attend, picture):
    """A picture with values from 0 to 255 is tried."""
    return int(attend(255 * torch.ones(36, 44)).argmax())


@KIND.wrong("numbers", "objects and edges")
def kind_without_a_map_that_stays(attend, picture):
    """Maps that stay at one place are taken for maps of brightness."""
    return {3: 1, 4: 1}.get(found := map_kind(attend, picture), found)


ANSWERS = collect_answers(checks, vars())
