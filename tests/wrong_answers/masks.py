"""Wrong answers to the exercises of chapters/07_masks."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.masked_softmax import masked_softmax as emptied
from attnbook.exercises import masks as checks
from attnbook.exercises.masks import models
from attnbook.exercises.masks.causal import causal
from attnbook.exercises.masks.combine import combine
from attnbook.exercises.masks.masked_weights import (
    add_to_masked,
    find_lowest_number,
)
from attnbook.exercises.masks.no_leak import are_close, is_unaffected, no_leak
from attnbook.exercises.masks.padding import padding
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers


def ones(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def torchs_own(T, S):
    return nn.Transformer.generate_square_subsequent_mask(S)[:T]


class Registered(nn.Module):
    """A causal buffer for as many positions as anyone will ever need."""

    def __init__(self, most=5):
        super().__init__()
        self.register_buffer("past", causal(most, most))

    def forward(self, lengths, T):
        most = len(self.past)
        past = ones(T, T)
        past[:most, :most] = self.past[:T, :T]
        return past & padding(lengths, T)


CAUSAL = Answers(checks.check_causal, make.with_batch_and_heads)
CAUSAL += (
    Wrong(
        "numbers",
        "sees the past in threes, as in a window copied along (rasbt PR 1013)",
        "the nearest keys",
        lambda T, S: causal(T, S).triu(S - T - 2),
    ),
    Wrong(
        "numbers",
        "one more empty row: shifted once more for teacher forcing",
        "that nothing leaks",
        lambda T, S: causal(T, S).roll(1, 0) & causal(T, S),
    ),
    Wrong(
        "dtype",
        "generate_square_subsequent_mask",
        "T = S, by other means",
        lambda T, S: torchs_own(T, max(S, T))[:, :S],
    ),
    Wrong(
        "dtype",
        "masks of 8 bits, from before PyTorch 1.2",
        "every number",
        lambda T, S: causal(T, S).to(torch.uint8),
    ),
)


@CAUSAL.wrong("numbers", "T = S and T = 1")
def decoding(T, S):
    """Decoding is a special case: one query sees all, several are square."""
    return ones(T, S) if T == 1 else ones(T, S).tril()


@CAUSAL.wrong("numbers", "T ≤ S")
def empty_sees(T, S):
    """An empty row is opened, for fear of NaN (d2l-en PR 2423)."""
    mask = causal(T, S)
    return mask | ~mask.any(-1, keepdim=True)


@CAUSAL.wrong("numbers", "T ≤ S")
def empty_sees_first(T, S):
    """An empty row gets key 0, for fear of NaN."""
    mask = causal(T, S)
    mask[:, 0] |= ~mask.any(-1)
    return mask


@CAUSAL.wrong("error", "T = S")
def square_only(T, S):
    """Refuses what is not square."""
    if T != S:
        raise ValueError(f"{T} queries and {S} keys")
    return ones(T, S).tril()


PADDING = Answers(checks.check_padding)
PADDING += (
    Wrong(
        "numbers",
        "everything is as long as the longest",
        "one sentence",
        lambda lengths, S: padding(lengths.max().expand(len(lengths)), S),
    ),
    Wrong(
        "numbers",
        "everything is as short as the shortest",
        "one sentence",
        lambda lengths, S: padding(lengths.min().expand(len(lengths)), S),
    ),
    Wrong(
        "numbers",
        "lengths are sorted, as pack_padded_sequence once wanted them",
        "sorted batches",
        lambda lengths, S: padding(lengths.sort(descending=True).values, S),
    ),
    Wrong(
        "numbers",
        "only the last word is seen, as a state of an RNN",
        "sentences of one word",
        lambda lengths, S: (torch.arange(S) == lengths[:, None] - 1)[:, None, None],
    ),
    Wrong(
        "numbers",
        "False where a length counts zeros: lengths == 0 hides all others",
        "empty sentences",
        lambda lengths, S: (
            (torch.arange(S) < lengths[:, None]) & (lengths[:, None] > 1)
        )[:, None, None],
    ),
    Wrong(
        "shape",
        "the batch in the place of the heads: (1, B, 1, S)",
        "a batch of one",
        lambda lengths, S: padding(lengths, S).transpose(0, 1),
    ),
    Wrong(
        "shape",
        "the batch in the place of the queries: (1, 1, B, S)",
        "a batch of one",
        lambda lengths, S: padding(lengths, S).transpose(0, 2),
    ),
    Wrong(
        "shape",
        "expanded to (B, 1, S, S)",
        "every number, broadcast",
        lambda lengths, S: padding(lengths, S).expand(-1, 1, S, S),
    ),
    Wrong(
        "dtype",
        "1 and 0 as tokenizers give them",
        "every number",
        lambda lengths, S: padding(lengths, S).long(),
    ),
)


@PADDING.wrong("shape", "a batch of one")
def batch_of_first(lengths, S):
    """The first sentence's mask, for a batch of one."""
    return padding(lengths[:1], S)


@PADDING.wrong("numbers", "padded sentences")
def by_loop_forgetting(lengths, S):
    """The last column is taken for the end symbol."""
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        mask[b, ..., :n] = True
        mask[b, ..., -1] = False
    return mask


COMBINE = Answers(checks.check_combine)
COMBINE += (
    Wrong(
        "numbers",
        "an empty row is opened, for fear of NaN (pytorch 160064)",
        "rows that see something",
        lambda lengths, T: (
            combine(lengths, T) | ~combine(lengths, T).any(-1, keepdim=True)
        ),
    ),
    Wrong(
        "numbers",
        "every query sees itself, so that no row is empty",
        "sentences without padding",
        lambda lengths, T: combine(lengths, T) | torch.eye(T).bool(),
    ),
    Wrong(
        "numbers",
        "`^` for `&`",
        "nothing that both show",
        lambda lengths, T: causal(T, T) ^ padding(lengths, T),
    ),
    Wrong(
        "numbers",
        "the mask of the first sentence for all",
        "a batch of one",
        lambda lengths, T: combine(lengths[:1].expand(len(lengths)), T),
    ),
    Wrong(
        "numbers",
        "a registered buffer, shorter than the sentences "
        "(rasbt/LLMs-from-scratch PR 925)",
        "short sentences",
        Registered(),
    ),
    Wrong(
        "numbers",
        "the padding is taken to come first",
        "sentences without padding",
        lambda lengths, T: causal(T, T) & padding(lengths, T).flip(-1),
    ),
    Wrong(
        "numbers",
        "keys are counted from 1: `<=` for `<`",
        "sentences without padding",
        lambda lengths, T: causal(T, T) & padding(lengths + 1, T),
    ),
    Wrong(
        "numbers",
        "causal seen from the end of each sentence",
        "full sentences",
        lambda lengths, T: (
            torch.arange(T) <= torch.arange(T)[:, None] + lengths[:, None, None] - T
        )[:, None],
    ),
    Wrong(
        "shape",
        "only (1, 1, T, T): the batch is left to broadcast",
        "a batch of one",
        lambda lengths, T: combine(lengths, T)[:1],
    ),
    Wrong(
        "shape",
        "a mask of (B, T) beside one of (T, T)",
        "B = T runs",
        lambda lengths, T: causal(T, T) & padding(lengths, T)[:, 0, 0],
    ),
)


MASKED_WEIGHTS = Answers(checks.check_masked_weights, make.in_double, make.detached)
MASKED_WEIGHTS += (
    Wrong(
        "numbers",
        "-1e6 (d2l-en PR 2423: a row without keys is uniform), in a precision "
        "that has it",
        "usual scores",
        lambda scores, mask: (
            scores.float().masked_fill(~mask, -1e6).softmax(-1).to(scores)
        ),
    ),
    Wrong(
        "numbers",
        "weights are spread evenly over what may be seen",
        "that they sum to 1",
        lambda scores, mask: emptied(scores * 0, mask),
    ),
    Wrong(
        "numbers",
        "log_softmax, for a loss that comes later (ARENA 164)",
        "the order",
        lambda scores, mask: emptied(scores, mask).log(),
    ),
    Wrong(
        "ready-made",
        "SDPA on an identity gives weights",
        "every number",
        lambda scores, mask: F.scaled_dot_product_attention(
            scores,
            torch.eye(scores.shape[-1], dtype=scores.dtype).expand(
                *scores.shape[:2], -1, -1
            ),
            torch.eye(scores.shape[-1], dtype=scores.dtype).expand(
                *scores.shape[:2], -1, -1
            ),
            mask,
            scale=1.0,
        ),
    ),
)


@MASKED_WEIGHTS.wrong("gradient", "what has no NaN, forwards")
def covered(scores, mask):
    """NaN is covered up by nan_to_num, also one that should be seen."""
    return add_to_masked(scores, mask, -torch.inf).nan_to_num()


@MASKED_WEIGHTS.wrong("nan", "masks with no empty row, or all empty")
def all_or_nothing(scores, mask):
    """NaN is prevented only where nothing at all is seen."""
    if not mask.any():
        return scores * 0
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


@MASKED_WEIGHTS.wrong("numbers", "usual scores")
def adding_lowest(scores, mask):
    """Minus the lowest number is added; a score of the same sign overflows to
    -inf, and one of the other sign is still there."""
    return add_to_masked(scores, mask, find_lowest_number(scores.dtype)) * mask


@MASKED_WEIGHTS.wrong("numbers", "usual scores")
def clipped(scores, mask):
    """Scores are clipped for safety."""
    scores = scores.clamp(-50, 50)
    return emptied(scores, mask)


@MASKED_WEIGHTS.wrong("numbers", "two digits")
def half_inside(scores, mask):
    """Half precision inside, as autocast would not do it."""
    return emptied(scores.half(), mask).to(scores.dtype)


@MASKED_WEIGHTS.wrong("nan", "usual scores")
def by_exponentials(scores, mask):
    """Exponentials times the mask, not shifted."""
    e = scores.exp() * mask
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


@MASKED_WEIGHTS.wrong("numbers", "two digits")
def softened(scores, mask):
    """A small number in the denominator, against division by zero."""
    top = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    e = (scores.masked_fill(~mask, -torch.inf) - top).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-2)


@MASKED_WEIGHTS.wrong("numbers", "masks that all share")
def first_mask(scores, mask):
    """The first sentence's mask for all (mask[0])."""
    return emptied(scores, mask.expand_as(scores)[:1, :1])


@MASKED_WEIGHTS.wrong("numbers", "masks of all True")
def queries_axis(scores, mask):
    """A padding mask laid along the queries (keras-io PR 1046)."""
    mask = mask.expand_as(scores)
    T, S = scores.shape[-2:]
    n = min(T, S)
    turned = ones(*scores.shape)
    turned[..., :n, :] = mask[..., 0, :n, None]
    return emptied(scores, turned)


@MASKED_WEIGHTS.wrong("random", "every number, on average")
def dropped(scores, mask):
    """Dropout inside, always on."""
    return F.dropout(emptied(scores, mask), 0.1)


@MASKED_WEIGHTS.wrong("changed-input", "every number")
def filling(scores, mask):
    """masked_fill_ saves memory."""
    return emptied(scores.masked_fill_(~mask, -torch.inf), mask)


NO_LEAK = Answers(checks.check_no_leak)
NO_LEAK += (
    Wrong("changed-model", "double precision, against rounding",
          "every verdict",
          lambda model, tokens: no_leak(model.double(), tokens)),
    Wrong("type", "the largest change is returned", "what to compare",
          lambda model, tokens: 0.0),
)  # fmt: skip


@NO_LEAK.wrong("numbers", "models in evaluation")
def without_eval(model, tokens):
    """Only dropout is off (pytorch 118972: two branches, two masks)."""
    model = copy.deepcopy(model)
    model.dropout.p = 0.0
    return is_unaffected(model, tokens, mode=None)


@NO_LEAK.wrong("numbers", "order that leaks")
def shuffled(model, tokens):
    """The future is put in another order, and holds what it held."""
    model = copy.deepcopy(model).eval()
    before = model(tokens)
    return all(
        are_close(
            model(torch.cat([tokens[:, :t], tokens[:, t:].flip(1)], 1))[:, :t],
            before[:, :t],
        )
        for t in range(1, tokens.shape[1])
    )


@NO_LEAK.wrong("present-too", "leaking models")
def fresh_each_time(model, tokens):
    """New tokens from the global seed, and the past with them."""
    model = copy.deepcopy(model).eval()
    other = torch.randint(1, models.SYMBOLS, tokens.shape)
    return are_close(model(tokens)[:, :-1], model(other)[:, :-1])


@NO_LEAK.wrong("numbers", "some model")
def accurate(model, tokens):
    """A leaking model is too good to be true (tensorflow/text PR 894)."""
    model = copy.deepcopy(model).eval()
    right = model(tokens)[:, :-1].argmax(-1) == tokens[:, 1:]
    return bool(right.double().mean() < 0.9)


@NO_LEAK.wrong("numbers", "masks that the same code makes")
def causal_attribute(model, tokens):
    """The mask is looked at, not the model."""
    return bool(model.mask(tokens, False).expand(1, -1, -1)[0].triu(1).sum() == 0)


@NO_LEAK.wrong("present-too", "nothing")
def past_changed(model, tokens):
    """The past is changed, and the future must stay."""
    model = copy.deepcopy(model).eval()
    before = model(tokens)
    for t in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, :t] = 0
        if not are_close(model(changed)[:, t:], before[:, t:]):
            return False
    return True


@NO_LEAK.wrong("changed-input", "every verdict")
def in_place(model, tokens):
    """Tokens are changed in place."""
    model = copy.deepcopy(model).eval()
    before, sound = model(tokens), True
    for t in range(tokens.shape[1] - 1, 0, -1):
        tokens[:, t] = 0
        sound = sound and are_close(model(tokens)[:, :t], before[:, :t])
    return sound


@NO_LEAK.wrong("numbers", "leaks to the first position")
def first_position(model, tokens):
    """Only the first position is looked at."""
    return is_unaffected(model, tokens, cuts=[1])


@NO_LEAK.wrong("numbers", "leaks within a sentence")
def one_sentence_at_a_time(model, tokens):
    """Each sentence alone: what they tell one another is not seen."""
    return all(is_unaffected(model, tokens[b : b + 1]) for b in range(len(tokens)))


INTERFACE = Answers(checks.check_interface_weights)


@INTERFACE.wrong("numbers", "the four ways without an opposite")
def interfaces_exchanged(scores, mask, how):
    """SDPA and the module are exchanged."""
    exchanged = {
        "SDPA, boolean": "module, boolean",
        "module, boolean": "SDPA, boolean",
    }
    return checks.check_interface_weights.solution(
        scores, mask, exchanged.get(how, how)
    )


@INTERFACE.wrong("numbers", "masks of all ones")
def all_as_boolean(scores, mask, how):
    """All six ways mask out where the mask is 0."""
    return checks.check_interface_weights.solution(scores, mask, "SDPA, boolean")


@INTERFACE.wrong("shape", "every number")
def with_a_query_axis(scores, mask, how):
    """The row keeps the axis of its query."""
    return checks.check_interface_weights.solution(scores, mask, how)[None]


@INTERFACE.wrong("ready-made", "every number of two ways")
def by_calling_sdpa(scores, mask, how):
    """The interface is called instead of predicted."""
    one = torch.eye(len(scores))[None]
    return F.scaled_dot_product_attention(
        scores[None, None], one, one, mask[None, None], scale=1.0
    )[0, 0]


@INTERFACE.wrong("numbers", "the order of the weights")
def unnormalized(scores, mask, how):
    """Exponentials are not divided by their sum."""
    weights = checks.check_interface_weights.solution(scores, mask, how)
    return weights * scores.exp().sum()


MASK_FAULT = Answers(checks.check_mask_fault, *make.DECISION)


@MASK_FAULT.wrong("error", "nothing")
def with_numbers_as_mask(attention, x, mask):
    """A mask of numbers is passed, which the function refuses."""
    zero, one = torch.zeros(4, 2), torch.eye(4)
    return int(attention(zero, zero, one, mask.float())[0, 1] > 0)


@MASK_FAULT.wrong("numbers", "right functions and some faults")
def leaks_only(attention, x, mask):
    """Only future positions are tested, so every leak looks the same."""
    zero, one = torch.zeros(4, 2), torch.eye(4)
    past = causal(4, 4)
    return int(attention(zero, zero, one, past).triu(1).abs().sum() > 1e-3)


@MASK_FAULT.wrong("numbers", "faults 1 to 4")
def empty_always_wrong(attention, x, mask):
    """An empty row of zeros is taken for wrong."""
    return checks.check_mask_fault.solution(attention, x, mask) or 5


PACKED = Answers(checks.check_packed_model, *make.DECISION, make.counted_from_one)


@PACKED.wrong("attention-not-tested", "the positions of separated documents")
def packed_backwards(model, tokens, ids):
    """The later document is changed, and the earlier one compared."""
    row, cut = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 1])
    changed = torch.tensor([1, 2, 8, 9])
    if not are_close(model(row, cut)[:2], model(changed, cut)[:2]):
        return 1
    return 0 if are_close(model(row, cut)[2:], model(row[2:], cut[2:])) else 2


@PACKED.wrong("always-crosses", "models that attend to earlier documents")
def packed_with_one_number(model, tokens, ids):
    """All tokens have one document number: there is nothing to separate."""
    row, one = torch.tensor([1, 2, 3, 4]), torch.zeros(4).long()
    changed, cut = torch.tensor([8, 9, 3, 4]), torch.tensor([0, 0, 1, 1])
    if not are_close(model(row, one)[2:], model(changed, one)[2:]):
        return 3 if are_close(model(row, one), model(row, cut)) else 1
    return 0 if are_close(model(row, cut)[2:], model(row[2:], one[2:])) else 2


@PACKED.wrong("error", "nothing")
def packed_too_long(model, tokens, ids):
    """A row of 100 tokens is longer than the model's positions."""
    long = torch.arange(100) % 10
    return int(model(long, long * 0).isnan().any())


@PACKED.wrong("numbers", "right models and one fault")
def packed_or_alone(model, tokens, ids):
    """Packed or alone is all that is compared: any difference is both."""
    row, cut = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 1])
    same = are_close(model(row, cut)[2:], model(row[2:], cut[2:]))
    return 0 if same else 3


ANSWERS = collect_answers(checks, vars())
