"""Wrong answers to the exercises of chapters/09_transformer."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import transformer as checks
from attnbook.exercises.edit import edit_solution
from attnbook.exercises.transformer.block import block
from attnbook.exercises.transformer.decoder_step import decoder_step
from attnbook.exercises.transformer.label_shift import next_symbol_loss
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

LAYER_NORM = Answers(checks.check_layer_norm, make.in_double)
LAYER_NORM += (
    Wrong(
        "ready-made",
        "one call in PyTorch",
        "every number",
        lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, gain, bias, eps),
    ),
)


@LAYER_NORM.wrong("numbers", "the range")
def by_max(x, gain, bias, eps):
    """Divided by the largest entry."""
    return x / (x.abs().amax(-1, keepdim=True) + eps) * gain + bias


@LAYER_NORM.wrong("numbers", "the direction")
def to_length_one(x, gain, bias, eps):
    """Brought to length 1, as F.normalize does."""
    return F.normalize(x - x.mean(-1, keepdim=True), dim=-1) * gain + bias


@LAYER_NORM.wrong("numbers", "the shape")
def eps_in_the_mean(x, gain, bias, eps):
    """ε added to the numbers, and the bias left out."""
    apart = x - x.mean(-1, keepdim=True) + eps
    return apart / (apart.square().mean(-1, keepdim=True) + eps).sqrt() * gain


@LAYER_NORM.wrong("numbers", "numbers near 0")
def mean_of_squares(x, gain, bias, eps):
    """The mean of the squares, as if the mean were 0."""
    mean = x.mean(-1, keepdim=True)
    variance = x.square().mean(-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias


@LAYER_NORM.wrong("gradient", "every value")
def statistics_detached(x, gain, bias, eps):
    """Mean and variance taken for constants."""
    mean = x.mean(-1, keepdim=True).detach()
    variance = (x - mean).square().mean(-1, keepdim=True).detach()
    return (x - mean) / (variance + eps).sqrt() * gain + bias


@LAYER_NORM.wrong("numbers", "a gain of 0")
def one_plus_gain(x, gain, bias, eps):
    """1 + gain, as some libraries store it."""
    apart = x - x.mean(-1, keepdim=True)
    variance = apart.square().mean(-1, keepdim=True)
    return apart / (variance + eps).sqrt() * (1 + gain) + bias


LABEL_SHIFT = Answers(checks.check_label_shift, make.detached)


@LABEL_SHIFT.wrong("numbers", "two symbols")
def by_two(logits, ids, pad):
    """Inputs and labels both cut by one (an input pipeline that has already
    shifted)."""
    if ids.shape[1] < 3:
        return next_symbol_loss(logits, ids, pad)
    return F.cross_entropy(
        logits[:, :-2].flatten(0, 1), ids[:, 2:].flatten(), ignore_index=pad
    )


@LABEL_SHIFT.wrong("numbers", "nothing")
def shifted_twice(logits, ids, pad):
    """Labels that were shifted already (Hugging Face models shift inside)."""
    return next_symbol_loss(logits, ids.roll(-1, 1), pad)


@LABEL_SHIFT.wrong("numbers", "a sure model")
def probabilities_as_logits(logits, ids, pad):
    """The probability for its logarithm."""
    chances = logits.softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -chances[ids[:, 1:] != pad].mean()


@LABEL_SHIFT.wrong("nan", "small logits")
def unstable(logits, ids, pad):
    """exp of the logits as they are."""
    chances = logits.exp() / logits.exp().sum(-1, keepdim=True)
    picked = chances[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -picked.log()[ids[:, 1:] != pad].mean()


@LABEL_SHIFT.wrong("numbers", "the order of models")
def in_bits(logits, ids, pad):
    """The result is in bits."""
    return next_symbol_loss(logits, ids, pad) / torch.log(
        torch.tensor(2.0, dtype=logits.dtype)
    )


@LABEL_SHIFT.wrong("numbers", "the shape")
def places_normalised(logits, ids, pad):
    """dim=1 in log_softmax."""
    gains = logits.log_softmax(1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -gains[ids[:, 1:] != pad].mean()


@LABEL_SHIFT.wrong("numbers", "two symbols")
def last_only(logits, ids, pad):
    """Only the last place is asked."""
    return F.cross_entropy(logits[:, -2], ids[:, -1], ignore_index=pad)


BLOCK = Answers(checks.check_block, make.detached, make.in_double)


@BLOCK.wrong("numbers", "the direction")
def halved_sum(x, attention, network, first, second):
    """Sums halved, to keep the variance."""
    x = (x + attention(first(x))) / 2
    return (x + network(second(x))) / 2


@BLOCK.wrong("numbers", "the direction")
def extra_norm(x, attention, network, first, second):
    """A norm at the end of every block."""
    return second(block(x, attention, network, first, second))


@BLOCK.wrong("numbers", "the shape")
def sandwich(x, attention, network, first, second):
    """Norms before and behind (the sandwich of CogView)."""
    x = x + first(attention(first(x)))
    return x + second(network(second(x)))


@BLOCK.wrong("numbers", "the shape")
def twice_attention(x, attention, network, first, second):
    """A copied line."""
    x = x + attention(first(x))
    x = x + attention(first(x))
    return x + network(second(x))


@BLOCK.wrong("numbers", "half of the block")
def norms_first_only(x, attention, network, first, second):
    """The second norm forgotten."""
    x = x + attention(first(x))
    return x + network(x)


@BLOCK.wrong("numbers", "half of the block")
def attention_not_normed(x, attention, network, first, second):
    """The first norm forgotten."""
    x = x + attention(x)
    return x + network(second(x))


@BLOCK.wrong("gradient", "every value")
def way_detached(x, attention, network, first, second):
    """The way past attention cut off by detach."""
    x = x.detach() + attention(first(x))
    return x + network(second(x))


DECODER_STEP = Answers(checks.check_decoder_step, make.detached, make.in_double)
DECODER_STEP += (
    Wrong(
        "numbers",
        "one causal mask for both attentions",
        "one target place and one source symbol",
        edit_solution(
            decoder_step,
            "memory, real) → memory, real & "
            "torch.ones(x.shape[1], memory.shape[1]).tril().bool())",
        ),
    ),
    Wrong(
        "numbers",
        "padding set to 0 instead of hidden: a key of 0 has the score 0, not "
        "minus infinity",
        "texts without padding",
        edit_solution(
            decoder_step,
            "memory, memory, real → memory * real.mT, memory * real.mT",
        ),
    ),
    Wrong(
        "numbers",
        "the values in reverse order",
        "one source symbol",
        edit_solution(decoder_step, "memory, memory, → memory, memory.flip(1),"),
    ),
    Wrong(
        "numbers",
        "lengths count from 0 (`<=`)",
        "full lengths",
        edit_solution(decoder_step, "< lengths → <= lengths"),
    ),
    Wrong(
        "numbers",
        "the last real symbol hidden, taken for END",
        "one source symbol",
        edit_solution(
            decoder_step,
            "< lengths[:, None, None] → < (lengths[:, None, None] - 1).clamp(min=1)",
        ),
    ),
)


@DECODER_STEP.wrong("source-mask-ignored", "texts without padding")
def per_text(x, memory, lengths, attend):
    """Loop over texts, but cut the memory of none."""
    full = torch.tensor([memory.shape[1]])
    rows = [
        decoder_step(x[i : i + 1], memory[i : i + 1], full, attend)
        for i in range(len(x))
    ]
    return torch.cat(rows)


WEIGHT_TYING = Answers(checks.check_weight_tying, make.detached)


@WEIGHT_TYING.wrong("numbers", "the vectors")
def untied(table, ids, states):
    """A layer of its own for the output."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = nn.Linear(*table.T.shape, bias=False).to(table)
    return table[ids] * table.shape[1] ** 0.5, other(states)


@WEIGHT_TYING.wrong("numbers", "square widths")
def rounded_scale(table, ids, states):
    """A rounded √C."""
    return table[ids] * round(table.shape[1] ** 0.5), states @ table.T


@WEIGHT_TYING.wrong("shape", "the numbers")
def reversed_order(table, ids, states):
    """Logits first, vectors second."""
    return states @ table.T, table[ids] * table.shape[1] ** 0.5


@WEIGHT_TYING.wrong("error", "the shape, where V = C")
def untransposed(table, ids, states):
    """States @ table, without the transpose."""
    return table[ids] * table.shape[1] ** 0.5, states @ table


@WEIGHT_TYING.wrong("numbers", "the vectors")
def ids_as_states(table, ids, states):
    """The vectors go straight to the output."""
    vectors = table[ids] * table.shape[1] ** 0.5
    return vectors, vectors @ table.T


MODEL_COST = Answers(checks.check_model_cost, make.in_texts)


@MODEL_COST.wrong("numbers", "every ratio")
def cost_in_bytes(*sizes):
    """The counts are in bytes of half precision."""
    return [2 * x for x in checks.check_model_cost.solution(*sizes)]


@MODEL_COST.wrong("numbers", "network and cache")
def cost_with_biases(V, C, H, G, F, L, S):
    """The biases of the projections are counted."""
    attention, network, model, cache = checks.check_model_cost.solution(
        V, C, H, G, F, L, S
    )
    more = 2 * C + 2 * G * (C // H)
    return [attention + more, network, model + L * more, cache]


@MODEL_COST.wrong("numbers", "attention, network and cache")
def cost_with_positions(V, C, H, G, F, L, S):
    """A learned position for each of S is counted; RoPE has no parameters."""
    attention, network, model, cache = checks.check_model_cost.solution(
        V, C, H, G, F, L, S
    )
    return [attention, network, model + S * C, cache]


BLOCK_FAULT = Answers(checks.check_block_fault, *make.DECISION, make.counted_from_one)


@BLOCK_FAULT.wrong("numbers", "all but the residual connection")
def fault_without_residual(block, x):
    """A missing residual connection is taken for a missing norm."""
    found = checks.check_block_fault.solution(block, x)
    return 5 if found == 1 else found


ACCURACY = Answers(
    checks.check_accuracy_explanation, *make.DECISION, make.counted_from_one
)


@ACCURACY.wrong("numbers", "models that do not copy")
def explanation_by_accuracy(model, ids, symbols):
    """The accuracy on training data is read as a proof of learning."""
    right = (model(ids)[:, :-1] == ids[:, 1:]).double().mean()
    return 0 if right > 0.99 else 1


ANSWERS = collect_answers(checks, vars())
