"""Wrong answers to the exercises of chapters/09_transformer."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import transformer as checks
from attnbook.exercises.solutions.transformer import (
    block,
    decoder_step,
    next_symbol_loss,
)
from attnbook.exercises.transformer.block import post
from attnbook.exercises.transformer.decoder_step import masks, with_masks
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

# Layer norm


def by_max(x, gain, bias, eps):
    return x / (x.abs().amax(-1, keepdim=True) + eps) * gain + bias


def to_length_one(x, gain, bias, eps):
    return F.normalize(x - x.mean(-1, keepdim=True), dim=-1) * gain + bias


def eps_in_the_mean(x, gain, bias, eps):
    apart = x - x.mean(-1, keepdim=True) + eps
    return apart / (apart.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def difference_of_squares(x, gain, bias, eps):
    mean = x.mean(-1, keepdim=True)
    variance = x.square().mean(-1, keepdim=True) - mean.square()
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def statistics_detached(x, gain, bias, eps):
    mean = x.mean(-1, keepdim=True).detach()
    variance = (x - mean).square().mean(-1, keepdim=True).detach()
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def one_plus_gain(x, gain, bias, eps):
    apart = x - x.mean(-1, keepdim=True)
    variance = apart.square().mean(-1, keepdim=True)
    return apart / (variance + eps).sqrt() * (1 + gain) + bias


# The loss of the next symbol


def by_two(logits, ids, pad):
    if ids.shape[1] < 3:
        return next_symbol_loss(logits, ids, pad)
    return F.cross_entropy(
        logits[:, :-2].flatten(0, 1), ids[:, 2:].flatten(), ignore_index=pad
    )


def probabilities_as_logits(logits, ids, pad):
    chances = logits.softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -chances[ids[:, 1:] != pad].mean()


def unstable(logits, ids, pad):
    chances = logits.exp() / logits.exp().sum(-1, keepdim=True)
    picked = chances[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -picked.log()[ids[:, 1:] != pad].mean()


def in_bits(logits, ids, pad):
    return next_symbol_loss(logits, ids, pad) / torch.log(
        torch.tensor(2.0, dtype=logits.dtype)
    )


def places_normalised(logits, ids, pad):
    gains = logits.log_softmax(1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
    return -gains[ids[:, 1:] != pad].mean()


def last_only(logits, ids, pad):
    return F.cross_entropy(logits[:, -2], ids[:, -1], ignore_index=pad)


def shifted_twice(logits, ids, pad):
    """Labels that a data loader has shifted already, shifted again."""
    return next_symbol_loss(logits, ids.roll(-1, 1), pad)


# The block


def halved_sum(x, attention, network, first, second):
    x = (x + attention(first(x))) / 2
    return (x + network(second(x))) / 2


def extra_norm(x, attention, network, first, second):
    return second(block(x, attention, network, first, second))


def sandwich(x, attention, network, first, second):
    x = x + first(attention(first(x)))
    return x + second(network(second(x)))


def twice_attention(x, attention, network, first, second):
    x = x + attention(first(x))
    x = x + attention(first(x))
    return x + network(second(x))


def norms_first_only(x, attention, network, first, second):
    x = x + attention(first(x))
    return x + network(x)


def attention_not_normed(x, attention, network, first, second):
    x = x + attention(x)
    return x + network(second(x))


def way_detached(x, attention, network, first, second):
    x = x.detach() + attention(first(x))
    return x + network(second(x))


# The decoder


def per_text(x, memory, lengths, attend):
    """Loop over texts, but cut the memory of none."""
    full = torch.tensor([memory.shape[1]])
    rows = [
        decoder_step(x[i : i + 1], memory[i : i + 1], full, attend)
        for i in range(len(x))
    ]
    return torch.cat(rows)


def causal_to_memory(x, memory, lengths, attend):
    past, real = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    ahead = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
    return x + attend(x, memory, memory, real & ahead)


def zeroed_memory(x, memory, lengths, attend):
    past, real = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    kept = memory * real.mT
    return x + attend(x, kept, kept, None)


def keys_only(x, memory, lengths, attend):
    past, real = masks(x, memory, lengths)
    x = x + attend(x, x, x, past)
    return x + attend(x, memory, memory.flip(1), real)


def off_by_one(past, real):
    return past, torch.cat([torch.ones_like(real[..., :1]), real[..., :-1]], -1)


def one_too_few(past, real):
    short = torch.cat([real[..., 1:], torch.zeros_like(real[..., :1])], -1)
    short[..., 0] = True
    return past, short


# One table


def untied(table, ids, states):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = nn.Linear(*table.T.shape, bias=False).to(table)
    return table[ids] * table.shape[1] ** 0.5, other(states)


def rounded_scale(table, ids, states):
    return table[ids] * round(table.shape[1] ** 0.5), states @ table.T


def with_the_scaled_table(table, ids, states):
    table = table * table.shape[1] ** 0.5
    return table[ids], states @ table.T


def reversed_order(table, ids, states):
    return states @ table.T, table[ids] * table.shape[1] ** 0.5


def untransposed(table, ids, states):
    return table[ids] * table.shape[1] ** 0.5, states @ table


def ids_as_states(table, ids, states):
    vectors = table[ids] * table.shape[1] ** 0.5
    return vectors, vectors @ table.T


# fmt: off
ANSWERS = {
    "check_layer_norm": (
        *usual(checks.check_layer_norm),
        single(checks.check_layer_norm.solution),
        Wrong("numbers", "divided by the largest entry", "the range", by_max),
        Wrong("numbers", "brought to length 1, as F.normalize does",
              "the direction", to_length_one),
        Wrong("numbers", "ε added to the numbers, and the bias left out",
              "the shape", eps_in_the_mean),
        Wrong("numbers", "the mean of the squares less the square of the mean",
              "numbers near 0", difference_of_squares),
        Wrong("gradient", "mean and variance taken for constants",
              "every value", statistics_detached),
        Wrong("numbers", "1 + gain, as some libraries store it",
              "a gain of 0", one_plus_gain),
        Wrong("ready-made", "one call in PyTorch", "every number",
              lambda x, gain, bias, eps: F.layer_norm(
                  x, gain.shape, gain, bias, eps)),
    ),
    "check_label_shift": (
        *usual(checks.check_label_shift),
        detached(checks.check_label_shift.solution),
        Wrong("numbers", "inputs and labels both cut by one (an input "
              "pipeline that has already shifted)", "two symbols", by_two),
        Wrong("numbers", "labels that were shifted already (Hugging Face "
              "models shift inside)", "nothing", shifted_twice),
        Wrong("numbers", "the probability for its logarithm", "a sure model",
              probabilities_as_logits),
        Wrong("nan", "exp of the logits as they are", "small logits",
              unstable),
        Wrong("numbers", "bits", "the order of models", in_bits),
        Wrong("numbers", "dim=1 in log_softmax", "the shape",
              places_normalised),
        Wrong("numbers", "only the last place is asked", "two symbols",
              last_only),
    ),
    "check_block": (
        *usual(checks.check_block),
        detached(checks.check_block.solution),
        single(checks.check_block.solution),
        Wrong("numbers", "sums halved, to keep the variance", "the direction",
              halved_sum),
        Wrong("numbers", "a norm at the end of every block", "the direction",
              extra_norm),
        Wrong("numbers", "norms before and behind (the sandwich of CogView)",
              "the shape", sandwich),
        Wrong("numbers", "a copied line", "the shape", twice_attention),
        Wrong("numbers", "the second norm forgotten", "half of the block",
              norms_first_only),
        Wrong("numbers", "the first norm forgotten", "half of the block",
              attention_not_normed),
        Wrong("gradient", "the way past attention cut off by detach",
              "every value", way_detached),
        Wrong("post-norm", "the annotated figure of 2017", "the parts",
              post),
    ),
    "check_decoder_step": (
        *usual(checks.check_decoder_step),
        detached(checks.check_decoder_step.solution),
        single(checks.check_decoder_step.solution),
        Wrong("source-mask-ignored", "texts taken one by one, at full length",
              "texts without padding", per_text),
        Wrong("numbers", "one causal mask for both attentions",
              "one target place and one source symbol", causal_to_memory),
        Wrong("numbers", "padding set to 0 instead of hidden: a key of 0 has "
              "the score 0, not minus infinity", "texts without padding",
              zeroed_memory),
        Wrong("numbers", "the values in reverse order", "one source symbol",
              keys_only),
        Wrong("numbers", "lengths count from 0 (`<=`)", "full lengths",
              with_masks(off_by_one)),
        Wrong("numbers", "the last real symbol hidden, taken for END",
              "one source symbol", with_masks(one_too_few)),
    ),
    "check_weight_tying": (
        *usual(checks.check_weight_tying),
        detached(checks.check_weight_tying.solution),
        Wrong("numbers", "a layer of its own for the output", "the vectors",
              untied),
        Wrong("numbers", "a rounded √C", "square widths", rounded_scale),
        Wrong("both-scaled", "the table is scaled, then used twice",
              "the vectors", with_the_scaled_table),
        Wrong("shape", "logits first, vectors second", "the numbers",
              reversed_order),
        Wrong("error", "states @ table, without the transpose",
              "the shape, where V = C", untransposed),
        Wrong("numbers", "the vectors go straight to the output",
              "the vectors", ids_as_states),
    ),
}
# fmt: on
