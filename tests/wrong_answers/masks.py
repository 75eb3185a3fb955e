"""Wrong answers to the exercises of chapters/07_masks."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import masks as checks
from attnbook.exercises.masks import models
from attnbook.exercises.masks.answers import added, emptied, lowest
from attnbook.exercises.masks.leakage import close, judge
from attnbook.exercises.solutions.masks import causal, combine, no_leak, padding
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual


def ones(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def rows(T, S):
    """The first lines of a mask made once for the longest sentence."""
    return causal(29, 29)[:T, :S]


def decoding(T, S):
    return ones(T, S) if T == 1 else ones(T, S).tril()


def empty_sees(T, S):
    """An empty row would be NaN, so it is opened."""
    mask = causal(T, S)
    return mask | ~mask.any(-1, keepdim=True)


def empty_sees_first(T, S):
    mask = causal(T, S)
    mask[:, 0] |= ~mask.any(-1)
    return mask


def square_only(T, S):
    if T != S:
        raise ValueError(f"{T} queries and {S} keys")
    return ones(T, S).tril()


def torchs_own(T, S):
    return nn.Transformer.generate_square_subsequent_mask(S)[:T]


CAUSAL = (
    Wrong(
        "inverted",
        "triu(1), True = hide (rasbt/LLMs-from-scratch 1061)",
        "one query",
        lambda T, S: ones(T, S).triu(S - T + 1),
    ),
    Wrong(
        "inverted",
        "nn.MultiheadAttention wants True where nothing may be seen",
        "the diagonal between the two",
        lambda T, S: torch.arange(S) > torch.arange(T)[:, None] + S - T,
    ),
    Wrong(
        "top-left",
        "is_causal=True of PyTorch (pytorch 108108)",
        "T = S",
        lambda T, S: torch.arange(S) <= torch.arange(T)[:, None],
    ),
    Wrong(
        "top-left",
        "a registered buffer cut to size, once a cache is used "
        "(rasbt/LLMs-from-scratch PR 697)",
        "T = S",
        rows,
    ),
    Wrong(
        "numbers",
        "decoding is a special case: one query sees all, several are square",
        "T = S and T = 1",
        decoding,
    ),
    Wrong(
        "numbers",
        "an empty row is opened, for fear of NaN (d2l-en PR 2423)",
        "T ≤ S",
        empty_sees,
    ),
    Wrong(
        "numbers",
        "an empty row gets key 0, for fear of NaN",
        "T ≤ S",
        empty_sees_first,
    ),
    Wrong(
        "error",
        "refuses what is not square",
        "T = S",
        square_only,
    ),
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
    Wrong(
        "shape",
        "axes for batch and heads are added",
        "every number, broadcast",
        lambda T, S: causal(T, S)[None, None],
    ),
)


def batch_of_first(lengths, S):
    return padding(lengths[:1], S)


def by_loop_forgetting(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        mask[b, ..., :n] = True
        mask[b, ..., -1] = False
    return mask


PADDING = (
    Wrong(
        "inverted",
        "key_padding_mask of nn.MultiheadAttention (tensorflow/text PR 894)",
        "where words end",
        lambda lengths, S: ~padding(lengths, S),
    ),
    Wrong(
        "wrong-axis",
        "mask[:, :, None] for mask[:, None] (keras-io PR 1046, "
        "hyunwoongko/transformer PR 40)",
        "how many are True",
        lambda lengths, S: (torch.arange(S) < lengths[:, None])[
            :, None, :, None
        ],
    ),
    Wrong(
        "queries-too",
        "padded queries are masked as well (annotated-transformer 37)",
        "the rows of words",
        lambda lengths, S: torch.einsum(
            "bs,bt->bts", *[(torch.arange(S) < lengths[:, None]).int()] * 2
        ).bool()[:, None],
    ),
    Wrong(
        "empty-sees-all",
        "an empty sentence would give NaN, so all is opened (d2l-en PR 2423)",
        "sentences with words",
        lambda lengths, S: padding(lengths.masked_fill(lengths == 0, S), S),
    ),
    Wrong(
        "shape",
        "the first sentence's mask, for a batch of one",
        "a batch of one",
        batch_of_first,
    ),
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
        "the last column is taken for the end symbol",
        "padded sentences",
        by_loop_forgetting,
    ),
    Wrong(
        "numbers",
        "only the last word is seen, as a state of an RNN",
        "sentences of one word",
        lambda lengths, S: (torch.arange(S) == lengths[:, None] - 1)[
            :, None, None
        ],
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
        "no-head-axis",
        "expand_mask, code and comment at odds (uvadlc_notebooks 143)",
        "three axes, where heads are not yet cut",
        lambda lengths, S: (torch.arange(S) < lengths[:, None])[:, None],
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


def additive(lengths, T):
    past = torch.zeros(T, T).masked_fill(~causal(T, T), -torch.inf)
    real = torch.zeros(len(lengths), 1, 1, T)
    return past + real.masked_fill(~padding(lengths, T), -torch.inf)


COMBINE = (
    Wrong(
        "or",
        "`|` for `&`: two masks that say what is hidden are joined with `|`",
        "keys that both show",
        lambda lengths, T: causal(T, T).logical_or(padding(lengths, T)),
    ),
    Wrong(
        "inverted",
        "both say what is hidden (pytorch 170415)",
        "the border",
        lambda lengths, T: ~causal(T, T) | ~padding(lengths, T),
    ),
    Wrong(
        "mixed-polarity",
        "key_padding_mask beside tril (tensorflow/text PR 894: 100 % accuracy)",
        "the future",
        lambda lengths, T: causal(T, T) & ~padding(lengths, T),
    ),
    Wrong(
        "mixed-polarity-future",
        "triu(1) beside a mask of words (rasbt/LLMs-from-scratch 1061)",
        "padding",
        lambda lengths, T: ones(T, T).triu(1) & padding(lengths, T),
    ),
    Wrong(
        "wrong-axis",
        "the padding mask is unsqueezed at the wrong place (keras-io PR 1046)",
        "the future",
        lambda lengths, T: causal(T, T) & padding(lengths, T).transpose(2, 3),
    ),
    Wrong(
        "wrong-axis",
        "padded queries are masked as well (bentrevett/pytorch-seq2seq 152)",
        "the rows of words",
        lambda lengths, T: (
            combine(lengths, T) & padding(lengths, T).transpose(2, 3)
        ),
    ),
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
            torch.arange(T)
            <= torch.arange(T)[:, None] + lengths[:, None, None] - T
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
    Wrong(
        "added",
        "two additive masks, added",
        "what softmax makes of it",
        additive,
    ),
)


def covered(scores, mask):
    return added(scores, mask, -torch.inf).nan_to_num()


def all_or_nothing(scores, mask):
    """NaN is prevented only where nothing at all is seen."""
    if not mask.any():
        return scores * 0
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def clipped(scores, mask):
    scores = scores.clamp(-50, 50)
    return emptied(scores, mask)


def half_inside(scores, mask):
    return emptied(scores.half(), mask).to(scores.dtype)


def by_exponentials(scores, mask):
    e = scores.exp() * mask
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


def softened(scores, mask):
    top = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    e = (scores.masked_fill(~mask, -torch.inf) - top).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-2)


def adding_lowest(scores, mask):
    return added(scores, mask, lowest(scores.dtype)) * mask


def first_mask(scores, mask):
    """The mask of the first sentence and head, for all."""
    return emptied(scores, mask.expand_as(scores)[:1, :1])


def queries_axis(scores, mask):
    """Masks what a padded query asks, not what is asked of padding."""
    mask = mask.expand_as(scores)
    T, S = scores.shape[-2:]
    n = min(T, S)
    turned = ones(*scores.shape)
    turned[..., :n, :] = mask[..., 0, :n, None]
    return emptied(scores, turned)


def dropped(scores, mask):
    return F.dropout(emptied(scores, mask), 0.1)


def filling(scores, mask):
    return emptied(scores.masked_fill_(~mask, -torch.inf), mask)


MASKED_WEIGHTS = (
    single(checks.check_masked_weights.solution),
    detached(checks.check_masked_weights.solution),
    Wrong(
        "inverted",
        "masked_fill(mask, -inf) with True = keep (pytorch 170415)",
        "a mask of all True, if all is hidden",
        lambda scores, mask: emptied(scores, mask.logical_not()),
    ),
    Wrong(
        "sentinel",
        "-1e9, as in the Annotated Transformer",
        "usual scores in single precision",
        lambda scores, mask: torch.softmax(
            torch.masked_fill(scores, ~mask, -1e9), dim=-1
        ),
    ),
    Wrong(
        "small-sentinel",
        "-10000 (hyunwoongko/transformer PR 40)",
        "usual scores",
        lambda scores, mask: torch.where(
            mask, scores, torch.tensor(-1e4, dtype=scores.dtype)
        ).softmax(-1),
    ),
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
        "empty-uniform",
        "finfo.min, as in Hugging Face's models",
        "rows with a key",
        lambda scores, mask: torch.where(
            mask, scores, torch.finfo(scores.dtype).min
        ).softmax(-1),
    ),
    Wrong(
        "empty-nan",
        "-inf and nothing more (pytorch 160064)",
        "rows with a key",
        lambda scores, mask: scores.masked_fill(~mask, -torch.inf).softmax(-1),
    ),
    Wrong(
        "gradient",
        "NaN is covered up by nan_to_num, also one that should be seen",
        "what has no NaN, forwards",
        covered,
    ),
    Wrong(
        "nan",
        "NaN is prevented only if the whole mask is empty",
        "masks with no empty row, or all empty",
        all_or_nothing,
    ),
    Wrong(
        "numbers",
        "minus the lowest number is added; a score of the same sign "
        "overflows to -inf, and one of the other sign is still there",
        "usual scores",
        adding_lowest,
    ),
    Wrong(
        "numbers",
        "scores are clipped for safety",
        "usual scores",
        clipped,
    ),
    Wrong(
        "numbers",
        "half precision inside, as autocast would not do it",
        "two digits",
        half_inside,
    ),
    Wrong(
        "nan",
        "exponentials times the mask, not shifted",
        "usual scores",
        by_exponentials,
    ),
    Wrong(
        "numbers",
        "a small number in the denominator, against division by zero",
        "two digits",
        softened,
    ),
    Wrong(
        "numbers",
        "the first sentence's mask for all (mask[0])",
        "masks that all share",
        first_mask,
    ),
    Wrong(
        "numbers",
        "a padding mask laid along the queries (keras-io PR 1046)",
        "masks of all True",
        queries_axis,
    ),
    Wrong(
        "random",
        "dropout inside, always on",
        "every number, on average",
        dropped,
    ),
    Wrong(
        "changed-input",
        "masked_fill_ saves memory",
        "every number",
        filling,
    ),
    Wrong(
        "wrong-axis",
        "dim=-2 for dim=-1",
        "T = 1",
        lambda scores, mask: emptied(
            scores.transpose(2, 3), mask.expand_as(scores).transpose(2, 3)
        ).transpose(2, 3),
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


def shuffled(model, tokens):
    """The future is put in another order, and holds what it held."""
    model = copy.deepcopy(model).eval()
    before = model(tokens)
    return all(
        close(
            model(torch.cat([tokens[:, :t], tokens[:, t:].flip(1)], 1))[:, :t],
            before[:, :t],
        )
        for t in range(1, tokens.shape[1])
    )


def fresh_each_time(model, tokens):
    """New tokens from the global seed, and the past with them."""
    model = copy.deepcopy(model).eval()
    other = torch.randint(1, models.SYMBOLS, tokens.shape)
    return close(model(tokens)[:, :-1], model(other)[:, :-1])


def shapes_only(model, tokens):
    model = copy.deepcopy(model).eval()
    return model(tokens).shape[:2] == tokens.shape


def accurate(model, tokens):
    """A leaking model is too good to be true (tensorflow/text PR 894)."""
    model = copy.deepcopy(model).eval()
    right = model(tokens)[:, :-1].argmax(-1) == tokens[:, 1:]
    return bool(right.double().mean() < 0.9)


def causal_attribute(model, tokens):
    return bool(
        model.see(tokens, False).expand(1, -1, -1)[0].triu(1).sum() == 0
    )


def without_eval(model, tokens):
    """Dropout is switched off, and with it only that."""
    model = copy.deepcopy(model)
    model.dropout.p = 0.0
    return judge(model, tokens, mode=None)


def average(a, b):
    return bool((a - b).abs().mean() < 1e-1)


def past_changed(model, tokens):
    """Cause and effect have changed places."""
    model = copy.deepcopy(model).eval()
    before = model(tokens)
    for t in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, :t] = 0
        if not close(model(changed)[:, t:], before[:, t:]):
            return False
    return True


def in_place(model, tokens):
    model = copy.deepcopy(model).eval()
    before, sound = model(tokens), True
    for t in range(tokens.shape[1] - 1, 0, -1):
        tokens[:, t] = 0
        sound = sound and close(model(tokens)[:, :t], before[:, :t])
    return sound


def first_position(model, tokens):
    return judge(model, tokens, cuts=[1])


def one_sentence_at_a_time(model, tokens):
    """Each sentence alone: what they tell one another is not seen."""
    return all(judge(model, tokens[b : b + 1]) for b in range(len(tokens)))


NO_LEAK = (
    Wrong("always-sound", "assert True", "sound models",
          lambda model, tokens: 1 == 1),
    Wrong("always-sound", "the shapes are right", "sound models",
          shapes_only),
    Wrong("inverted", "returns whether it leaks", "nothing",
          lambda model, tokens: not no_leak(model, tokens)),
    Wrong("as-it-comes", "no `.eval()`", "models in evaluation",
          lambda model, tokens: judge(model, tokens, mode=None)),
    Wrong("as-it-comes", "only the branch for training is tried (nanoGPT 331)",
          "models without a mode",
          lambda model, tokens: judge(model, tokens, mode=True)),
    Wrong("left-in-evaluation", "`.eval()` and no way back (every tutorial)",
          "every verdict",
          lambda model, tokens: judge(model.eval(), tokens)),
    Wrong("to-the-last-bit", "torch.equal", "leaking models",
          lambda model, tokens: judge(model, tokens,
                                      same=lambda a, b: bool((a == b).all()))),
    Wrong("too-generous", "differences are averaged", "large leaks",
          lambda model, tokens: judge(model, tokens, same=average)),
    Wrong("numbers", "only dropout is switched off (pytorch 118972: two "
          "branches, two masks)", "models in evaluation", without_eval),
    Wrong("numbers", "the future is put in another order", "order that leaks",
          shuffled),
    Wrong("present-too", "all tokens change, the past with them",
          "leaking models", fresh_each_time),
    Wrong("numbers", "100 % accuracy is the only sign of a leak",
          "some model", accurate),
    Wrong("numbers", "the mask is looked at, not the model",
          "masks that the same code makes", causal_attribute),
    Wrong("present-too", "the past is changed, and the future must stay",
          "nothing", past_changed),
    Wrong("changed-input", "tokens are changed in place", "every verdict",
          in_place),
    Wrong("changed-model", "double precision, against rounding",
          "every verdict",
          lambda model, tokens: no_leak(model.double(), tokens)),
    Wrong("numbers", "only the first position is looked at",
          "leaks to the first position", first_position),
    Wrong("numbers", "sentences are tried alone", "leaks within a sentence",
          one_sentence_at_a_time),
    Wrong("first-sentence-only", "x[0], while debugging",
          "leaks that all sentences have",
          lambda model, tokens: judge(
              model, tokens, same=lambda a, b: close(a[0], b[0]))),
    Wrong("no-padding", "randint(1, V)", "leaks by words",
          lambda model, tokens: judge(model, tokens,
                                      symbols=range(1, models.SYMBOLS))),
    Wrong("no-padding", "one symbol is enough for the future", "most leaks",
          lambda model, tokens: judge(model, tokens, symbols=[3])),
    Wrong("too-generous", "atol=1e-1, after a false alarm", "large leaks",
          lambda model, tokens: judge(
              model, tokens, same=lambda a, b: (a - b).norm(torch.inf) < 0.2)),
    Wrong("type", "the largest change is returned", "what to compare",
          lambda model, tokens: 0.0),
)  # fmt: skip


ANSWERS = {
    "check_causal": (*usual(checks.check_causal), *CAUSAL),
    "check_padding": (*usual(checks.check_padding), *PADDING),
    "check_combine": (*usual(checks.check_combine), *COMBINE),
    "check_masked_weights": (
        *usual(checks.check_masked_weights),
        *MASKED_WEIGHTS,
    ),
    "check_no_leak": (*usual(checks.check_no_leak), *NO_LEAK),
}
