"""Wrong answers to the exercises of chapters/05_self_attention."""

import torch
from torch.nn import functional as F

from attnbook.exercises import self_attention as checks
from attnbook.exercises.self_attention.causal_self_attention import (
    mask_upper_triangle,
)
from attnbook.exercises.self_attention.cross_attention import (
    attend_to_itself,
    average_values,
    mask_future,
)
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

RIGHT = average_values()


def first_of_batch(x, memory, W_query, W_key, W_value):
    return RIGHT(x, memory[:1].expand_as(memory), W_query, W_key, W_value)


def first_query(x, memory, W_query, W_key, W_value):
    return RIGHT(x[:, :1], memory, W_query, W_key, W_value).expand(-1, x.shape[1], -1)


def hard(x, memory, W_query, W_key, W_value):
    scores = (x @ W_query.T) @ (memory @ W_key.T).mT
    chosen = F.one_hot(scores.argmax(-1), memory.shape[1]).to(x.dtype)
    return chosen @ (memory @ W_value.T)


def values_normalised(x, memory, W_query, W_key, W_value):
    value = F.normalize(memory @ W_value.T, dim=-1)
    query, key = x @ W_query.T, memory @ W_key.T
    scores = query @ key.mT * W_query.shape[0] ** -0.5
    return scores.softmax(-1) @ value


def cosine(x, memory, W_query, W_key, W_value):
    query = F.normalize(x @ W_query.T, dim=-1)
    key = F.normalize(memory @ W_key.T, dim=-1)
    return (query @ key.mT).softmax(-1) @ (memory @ W_value.T)


def residual(x, memory, W_query, W_key, W_value):
    output = RIGHT(x, memory, W_query, W_key, W_value)
    return output + x if output.shape == x.shape else output + x.mean()


def twice(x, memory, W_query, W_key, W_value):
    return average_values(then=lambda w, D: w.softmax(-1))(
        x, memory, W_query, W_key, W_value
    )


def by_tokens(x, memory, W_query, W_key, W_value):
    return average_values(scale=lambda D, C: memory.shape[1] ** -0.5)(
        x, memory, W_query, W_key, W_value
    )


def multiplied(x, memory, W_query, W_key, W_value):
    return average_values(scale=lambda D, C: D**0.5)(x, memory, W_query, W_key, W_value)


def weights_themselves(x, memory, W_query, W_key, W_value):
    query, key = x @ W_query.T, memory @ W_key.T
    return (query @ key.mT * W_query.shape[0] ** -0.5).softmax(-1)


def relu_for_softmax(x, memory, W_query, W_key, W_value):
    query, key = x @ W_query.T, memory @ W_key.T
    weights = (query @ key.mT * W_query.shape[0] ** -0.5).relu()
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)
    return weights @ (memory @ W_value.T)


def reshaped_keys(x, memory, W_query, W_key, W_value):
    query, key = x @ W_query.T, memory @ W_key.T
    key = key.reshape(key.shape[0], key.shape[2], key.shape[1])
    scores = query @ key * W_query.shape[0] ** -0.5
    return scores.softmax(-1) @ (memory @ W_value.T)


def of_any(made):
    """Return what can go wrong whoever asks whom.

    Args:
        made: turns a cross-attention into an answer of the exercise.
    """

    def wrong(slug, why, still, answer):
        return Wrong(slug, why, still, made(answer))

    return (
        wrong("numbers", "memory[0] while debugging", "a batch of one",
              first_of_batch),
        wrong("numbers", "the loop over queries returns early",
              "one query", first_query),
        wrong("numbers", "argmax: 'the best match'", "one key", hard),
        wrong("numbers", "values are normalised too", "directions",
              values_normalised),
        wrong("numbers", "cosine similarity for the product", "one key",
              cosine),
        wrong("numbers", "the residual connection belongs to the block",
              "the shape", residual),
        wrong("numbers", "softmax in the function and again outside",
              "one key", twice),
        wrong("numbers", "√ of the number of keys (1/√N is 'the length')",
              "S = D", by_tokens),
        wrong("numbers", "** 0.5 for ** -0.5 (ng-video-lecture 46)",
              "D = 1", multiplied),
        wrong("shape", "the weights are returned", "that they sum to 1",
              weights_themselves),
        wrong("numbers", "relu for softmax", "that they sum to 1",
              relu_for_softmax),
    )  # fmt: skip


def causal(**changes):
    return attend_to_itself(average_values(**({"bend": mask_future} | changes)))


def fill_future(number):
    return causal(
        bend=lambda scores: scores.masked_fill(mask_upper_triangle(scores), number)
    )


def only_the_one_before(scores):
    seen = torch.eye(scores.shape[-1], dtype=torch.bool)
    seen = seen | seen.roll(-1, 1).tril()
    return scores.masked_fill(~seen, -torch.inf)


def scalar(scale):
    return causal(scale=scale)


SELF_ATTENTION = Answers(checks.check_self_attention, make.detached, make.in_double)
SELF_ATTENTION += (
*of_any(attend_to_itself),
    Wrong("numbers", "reshape for transpose", "the shape",
          attend_to_itself(reshaped_keys)),
    Wrong("error", "only the queries are made with x @ W_query",
          "the shape, where the matrices are square",
          lambda x, Q, K, V: RIGHT(x, x, Q.mT, K, V)),
    Wrong("ready-made", "one call in PyTorch", "every number",
          lambda x, Q, K, V: F.scaled_dot_product_attention(
              x @ Q.T, x @ K.T, x @ V.T)),
)  # fmt: skip


@SELF_ATTENTION.wrong("error", "what lies in one piece")
def viewed(x, W_query, W_key, W_value):
    """`view` on an input that is a view already."""
    flat = x.view(-1, x.shape[-1])
    query, key, value = (
        (flat @ W.T).view(*x.shape[:2], -1) for W in (W_query, W_key, W_value)
    )
    scores = query @ key.mT * W_query.shape[0] ** -0.5
    return scores.softmax(-1) @ value


CROSS_ATTENTION = Answers(checks.check_cross_attention, make.detached, make.in_double)
CROSS_ATTENTION += (
*of_any(lambda answer: answer),
    Wrong("numbers", "reshape for transpose", "the shape",
          reshaped_keys),
    Wrong("error", "W_value is applied as memory @ W_value",
          "the shape, where it is square",
          lambda x, m, Q, K, V: RIGHT(x, m, Q, K, V.mT)),
    Wrong("error", "keys of memory, values of x",
          "the shape, where C = M and T = S",
          lambda x, m, Q, K, V: average_values()(x, m, Q, K, V[:, :1]) * 0
          + (x @ V.T).mean(1, keepdim=True)),
    Wrong("ready-made", "one call in PyTorch", "every number",
          lambda x, m, Q, K, V: F.scaled_dot_product_attention(
              x @ Q.T, m @ K.T, m @ V.T)),
)  # fmt: skip


@CROSS_ATTENTION.wrong("nan", "small scores")
def unshifted(x, memory, W_query, W_key, W_value):
    """exp of the scores as they are."""
    query, key = x @ W_query.T, memory @ W_key.T
    powers = (query @ key.mT * W_query.shape[0] ** -0.5).exp()
    return powers / powers.sum(-1, keepdim=True) @ (memory @ W_value.T)


CAUSAL_SELF_ATTENTION = Answers(
    checks.check_causal_self_attention, make.detached, make.in_double
)
CAUSAL_SELF_ATTENTION += (
    Wrong("numbers", "a window of two, copied from a local model",
          "two positions", causal(bend=only_the_one_before)),
    Wrong("numbers", "softmax twice", "one position",
          causal(then=lambda w, D: w.softmax(-1))),
    Wrong("numbers", "** 0.5 for ** -0.5", "D = 1",
          scalar(lambda D, C: D**0.5)),
    Wrong("numbers", "divided by D", "D = 1", scalar(lambda D, C: 1 / D)),
    Wrong("numbers", "the softmax runs over the queries",
          "one position", causal(
              axis=-2, then=lambda w, D: w.nan_to_num())),
    Wrong("numbers", "divided by √T", "T = D", attend_to_itself(
        lambda x, m, Q, K, V: average_values(
            scale=lambda D, C: m.shape[1] ** -0.5, bend=mask_future
        )(x, m, Q, K, V))),
    Wrong("numbers", "a sentinel of -100, which large scores reach",
          "small scores",
          fill_future(-1e2)),
    Wrong("numbers", "a sentinel of -10000 (hyunwoongko/transformer PR 40)",
          "scores of usual size",
          fill_future(-1e4)),
    Wrong("numbers", "the lowest number of half precision, in any",
          "half precision",
          fill_future(-65504.0)),
    Wrong("numbers", "the Annotated Transformer's -1e9",
          "usual scores in single precision",
          fill_future(-1e9)),
    Wrong("nan", "masked after the softmax and divided by what is left",
          "small scores", causal(
              bend=lambda s: s, then=lambda w, D: w.tril()
              / w.tril().sum(-1, keepdim=True))),
    Wrong("ready-made", "is_causal=True", "every number",
          lambda x, Q, K, V: F.scaled_dot_product_attention(
              x @ Q.T, x @ K.T, x @ V.T, is_causal=True)),
)  # fmt: skip


@CAUSAL_SELF_ATTENTION.wrong("numbers", "one position")
def past_values_only(x, W_query, W_key, W_value):
    """The mask on the values: a running mean of future-free values."""
    value = (x @ W_value.T).cumsum(1)
    query, key = x @ W_query.T, x @ W_key.T
    scores = mask_future(query @ key.mT * W_query.shape[0] ** -0.5)
    return scores.softmax(-1) @ value


@CAUSAL_SELF_ATTENTION.wrong("numbers", "the shape")
def masks_the_input(x, W_query, W_key, W_value):
    """The last input is blanked: 'no peeking'."""
    last = x.clone()
    last[:, -1] = 0
    return attend_to_itself(RIGHT)(last, W_query, W_key, W_value)


CHANGED_OUTPUTS = Answers(checks.check_changed_outputs)


@CHANGED_OUTPUTS.wrong("type", "which outputs")
def changed_as_set(*inputs):
    """A set, because the order does not matter."""
    return set(checks.check_changed_outputs.solution(*inputs))


@CHANGED_OUTPUTS.wrong("type", "which outputs")
def changed_as_column(*inputs):
    """A column of indices, as torch.nonzero returns it."""
    changed = checks.check_changed_outputs.solution(*inputs)
    return torch.tensor(changed)[:, None]


@CHANGED_OUTPUTS.wrong("numbers", "how many outputs")
def changed_from_one(*inputs):
    """The positions are counted from 1."""
    return [t + 1 for t in checks.check_changed_outputs.solution(*inputs)]


@CHANGED_OUTPUTS.wrong("numbers", "the order of the outputs, reversed")
def changed_last_first(*inputs):
    """The outputs are collected from the last one back."""
    return checks.check_changed_outputs.solution(*inputs)[::-1]


@CHANGED_OUTPUTS.wrong("length", "stacks without cross-attention")
def changed_by_unmasked_memory(layers, T, S, part, position):
    """Any change of the memory is followed like a change of x."""
    answer = checks.check_changed_outputs.solution
    return answer(layers, T, S, "x", min(position, T - 1))


@CHANGED_OUTPUTS.wrong("error", "single layers")
def changed_by_layer_name(layers, T, S, part, position):
    """The list of layers is taken for the name of one layer."""
    return {"self": list(range(T)), "causal": list(range(position, T))}[layers]


ATTENTION_FAULT = Answers(checks.check_attention_fault, *make.DECISION)


@ATTENTION_FAULT.wrong("always-right", "layers without a fault")
def layer_fault_by_shapes(layer, x):
    """Only shapes are tested, and they are always right."""
    return int(layer(x).shape[:2] != x.shape[:2])


@ATTENTION_FAULT.wrong("numbers", "every other fault")
def layer_fault_without_fifth(*inputs):
    """Equal weights are not tested."""
    found = checks.check_attention_fault.solution(*inputs)
    return found if found < 5 else 0


@ATTENTION_FAULT.wrong("numbers", "faults that a short input shows")
def layer_fault_with_one_position(layer, x):
    """A sequence of one position is the simplest test."""
    return checks.check_attention_fault.solution(
        lambda z: layer(z[:, :1]).expand(-1, z.shape[1], -1), x
    )


@ATTENTION_FAULT.wrong("error", "layers without a mask")
def layer_fault_from_weights(layer, x):
    """The layer is expected to return its weights as well."""
    output, weights = layer(x), layer(x, return_weights=True)
    return int(bool(weights.triu(1).any()) and output.any())


HEAD_EXPLANATION = Answers(
    checks.check_head_explanation, *make.DECISION, make.counted_from_one
)


@HEAD_EXPLANATION.wrong("numbers", "nothing")
def explained_by_position(head, noun, other):
    """The position that the head attends to is returned."""
    return head(noun, other, "heavy", 0)


@HEAD_EXPLANATION.wrong("error", "nothing")
def head_explained_by_one_noun(head, noun, other):
    """The same noun is put in both places."""
    return head(noun, noun, "heavy", 0)


@HEAD_EXPLANATION.wrong("error", "nothing")
def head_explained_by_sentence(head, noun, other):
    """The head is called with a sentence."""
    return head(f"the {noun} broke the {other} because it was heavy")


@HEAD_EXPLANATION.wrong("error", "heads that do not depend on the last word")
def head_explained_by_other_adjective(head, noun, other):
    """Another adjective is tried, which the head does not know."""
    return int(head(noun, other, "fragile", 0) != 1)


ANSWERS = collect_answers(checks, vars())
