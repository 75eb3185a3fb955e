"""The exercises of the chapter on masks.

Source: causal at the bottom right and zeros for an empty row are this book's
    conventions; PyTorch's pages on `scaled_dot_product_attention` and
    `MultiheadAttention`, https://docs.pytorch.org/docs/stable/
Axes: B batch, H heads, T queries or positions, S keys, V symbols, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook import masks
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.declare import Case, Exercise, fill


def causal(T: int, S: int) -> Bool[Tensor, "T S"]:
    """Return True where key s does not come after query t.

    The last query is aligned with the last key, so query t has the position
    t + S - T.
    """
    return torch.arange(S) <= torch.arange(T)[:, None] + S - T


def causal_cases(draw):
    few, less = draw.whole(2, 6), draw.whole(2, 6)
    many, more = draw.whole(8, 23), draw.whole(8, 23)
    yield "with one query and one key", 1, 1
    yield "with 3 queries and 3 keys", 3, 3
    yield "with as many queries as keys", many, many
    yield "with one query and a cache of keys", 1, more
    yield "with more keys than queries", few, many
    yield "with more queries than keys", more, less
    yield "with many queries and keys", 10 * few, 10 * many


check_causal = Exercise(
    causal,
    causal_cases,
    stars=1,
    minutes=5,
    section="Causal masks with a KV cache",
    title="causal mask, square or not",
    returns=("mask",),
    library=(masks.causal,),
    mistakes={
        "inverted": ("the mask is inverted: True should mean “can attend”", "<= → >"),
        "top-left": (
            "the mask is aligned at the top left, not at the bottom right",
            " + S - T → ",
        ),
        "clamped": (
            "with more queries than keys, the mask is aligned at the top left",
            "S - T → max(S - T, 0)",
        ),
        "not-itself": ("a query cannot attend to its own position", "<= → <"),
        "next-visible": (
            "a query can attend to the next position",
            "S - T → S - T + 1",
        ),
        "additive": (
            "this is an additive mask; it should be boolean",
            lambda T, S: torch.zeros(T, S).masked_fill(~causal(T, S), -torch.inf),
        ),
    },
    hints=(
        "At which position of the whole sequence is the last query?",
        "Query t has the position t + S - T; compare it with the keys' positions.",
    ),
)


def masked_weights_cases(draw):
    def some(*shape):
        mask = draw.normal(*shape) > 0
        mask[..., 0], mask[..., 1] = True, False
        return mask

    def lone(height, dtype):
        """Only key 2 is not masked out; its score is low, the others' are high."""
        only = torch.arange(5) == 2
        row = torch.where(only, -height, height).to(dtype)
        return row.expand(2, 3, 7, 5).clone(), only.expand(7, 5)

    scores, empty = draw.normal(2, 3, 7, 5), some(2, 3, 7, 5)
    empty[0, :, :3], empty[1, 0, 4] = False, False
    loud, sick, open_row = scores.clone(), scores.clone(), empty.clone()
    loud[..., 1] += 300  # masked out by `some`
    sick[0, 1, 6, 3], open_row[0, 1, 6] = torch.nan, True
    many = draw.normal(33, 41) > 1
    yield "with one key", scores[..., :1], torch.ones(7, 1) > 0
    yield "with a mask", scores, some(2, 3, 7, 5)
    yield "with one mask for all sentences", scores, some(7, 5)
    yield "with empty rows", scores, empty
    yield "with everything masked out", scores, torch.zeros(7, 5) > 0
    yield "with the highest score masked out", loud, some(7, 5)
    yield "with many keys", draw.normal(1, 2, 33, 41), many
    yield "with only a very low score not masked out", *lone(3e38, torch.float32)
    yield "with a NaN that is not masked out", sick, open_row
    yield "in half precision", scores.half(), empty
    yield "in bfloat16", scores.bfloat16(), empty
    yield "in half precision, with one very low score", *lone(6e4, torch.float16)


def fill_with_lowest(scores, mask):
    """Mask with the lowest finite number."""
    return fill(scores, mask, torch.finfo(scores.dtype).min).softmax(-1)


check_masked_weights = Exercise(
    masked_softmax,
    masked_weights_cases,
    stars=2,
    minutes=10,
    section="Padded queries and queries without keys",
    title="masked attention weights",
    returns=("weights",),
    mistakes={
        "wrong-axis": (
            "the softmax runs over another axis; it should run over the keys",
            [
                ".softmax(dim=-1) → .softmax(dim=-2)",
                lambda scores, mask: fill(scores, mask).softmax(-2).nan_to_num(),
                lambda scores, mask: (
                    masked_softmax(scores.mT, mask.expand_as(scores).mT).mT
                ),
                lambda scores, mask: scores.softmax(-2) * mask,
            ],
        ),
        "inverted": (
            "the mask is inverted: True should mean “can attend”",
            "~mask, → mask, ; ~mask.any → mask.all",
        ),
        "masked-after": (
            "the mask is applied after the softmax, so the weights no longer sum to 1",
            lambda scores, mask: scores.softmax(-1) * mask,
        ),
        "sentinel": (
            "masked scores get a finite number such as -1e9; use minus infinity",
            [
                lambda scores, mask: fill(scores, mask, -1e9).softmax(-1),
                lambda scores, mask: fill(scores, mask, -1e9).softmax(-1) * mask,
                lambda scores, mask: fill(scores, mask, -1e4).softmax(-1),
                lambda scores, mask: fill(scores, mask, -1e4).softmax(-1) * mask,
            ],
        ),
        "empty-uniform": (
            "an empty row gets equal weights; they should be 0",
            fill_with_lowest,
        ),
        "empty-nan": (
            "an empty row gives NaN; its weights should be 0",
            lambda scores, mask: fill(scores, mask).softmax(-1),
        ),
    },
    hints=(
        "What does a softmax give for a row of minus infinities only?",
        "Find the rows without any True, give them other scores before the softmax, "
        "and set their weights to 0 after it.",
    ),
)

SYMBOLS, WIDTH = 6, 5  # symbol 0 is padding


class SmallModel(nn.Module):
    """One layer of attention, from tokens (B, T) to logits (B, T, V).

    `mask` maps the causal mask, tokens and mode to a mask (B, T, T), and `mix` hidden
    numbers (B, T, C) and tokens to hidden numbers. Dropout is for training mode.
    """

    def __init__(
        self,
        draw: torch.Generator,
        mask: Callable = lambda past, *_: past,
        mix: Callable = lambda hidden, _: hidden,
        fill: float = -torch.inf,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.mask, self.mix, self.fill = mask, mix, fill
        self.dropout = nn.Dropout(dropout)
        table, query, key, readout = torch.randn(4, SYMBOLS, WIDTH, generator=draw)
        scores = (table @ query[:WIDTH]) @ (table @ key[:WIDTH]).T / WIDTH**1.5
        self.register_buffer("table", table)
        self.register_buffer("scores", scores)  # of every pair of symbols
        self.register_buffer("readout", readout.T)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits; those at position t predict the next symbol."""
        x, T = self.table[tokens], tokens.shape[1]
        past = torch.ones(T, T, dtype=torch.bool).tril()
        mask = self.mask(past, tokens, self.training)
        scores = self.scores[tokens[:, :, None], tokens[:, None]]
        weights = scores.masked_fill(~mask, self.fill).softmax(-1)
        hidden = self.mix(x + weights @ x, tokens)
        hidden = self.dropout(hidden) if self.training else hidden
        return 8 + hidden @ self.readout


def allow(t: int, s: int) -> Callable:
    """Return a causal mask but for one query, which attends to one key more."""

    def mask(past, *_):
        entry = torch.zeros_like(past)
        entry[t, s] = True
        return past | entry

    return mask


def open_last(past: Tensor, tokens: Tensor, _: bool) -> Tensor:
    """Return a mask that is causal but for the last sequence of a batch."""
    last = torch.arange(len(tokens)) == len(tokens) - 1
    return past | last[:, None, None]


def find_equal_symbols(tokens: Tensor) -> Tensor:
    """Return True where a key has the query's symbol, unless it is padding."""
    return (tokens[:, :, None] == tokens[:, None]) & (tokens != 0)[:, None]


def round_hidden(hidden: Tensor, _: Tensor) -> Tensor:
    """Add the sum over all positions, and take it away again."""
    total = hidden.sum(1, keepdim=True)
    return (hidden + total) - total


def mix_sequences(hidden: Tensor, _: Tensor) -> Tensor:
    """Mix in the next sequence of the batch."""
    return hidden + 0.3 * (hidden.roll(1, 0) - hidden).mean(1, keepdim=True)


def spread_nan(hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return NaN for a sequence that contains padding."""
    return hidden.masked_fill((tokens == 0).any(1)[:, None, None], torch.nan)


# What a model does, and its parts; one with dropout is given in training mode.
MODELS = {
    "attends to the past only": {},
    "has no mask": {"mask": lambda past, *_: past | True},
    "leaks at the last position but one": {"mask": allow(-2, -1)},
    "leaks from position 3 to position 1": {"mask": allow(1, 3)},
    "leaks in one sentence of the batch": {"mask": open_last},
    "leaks from one sentence to the next": {"mix": mix_sequences},
    "leaks at padding": {"mask": lambda past, tokens, _: past | (tokens == 0)[:, None]},
    "gives NaN if there is padding": {"mix": spread_nan},
    "attends to later copies of the query's symbol": {
        "mask": lambda past, tokens, _: past | find_equal_symbols(tokens)
    },
    "leaks very little": {"fill": -8.0},
    "is causal up to rounding": {"mix": round_hidden},
    "is causal in evaluation mode, given in training mode": {
        "mask": lambda past, _, training: past | training,
        "dropout": 0.5,
    },
}


def no_leak(
    model: Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]],
    tokens: Int[Tensor, "B T"],
) -> bool:
    """Tell whether a model's past stays when its future changes.

    Args:
        model: a module that gives logits, one for each of V symbols, of which
            0 is padding. It is judged in evaluation mode, and left as it came.
        tokens: a batch to begin with.
    """
    training = model.training
    before = model.eval()(tokens)

    def stays(start: int, symbol: int) -> bool:
        changed = tokens.clone()
        changed[:, start:] = symbol
        after = model(changed)[:, :start]
        return torch.allclose(after, before[:, :start], rtol=2e-5, atol=2e-5)

    sound = all(
        stays(start, symbol)
        for start in range(1, tokens.shape[1])
        for symbol in range(before.shape[-1])
    )
    model.train(training)
    return sound


def no_leak_cases(draw):
    few = draw.integers(1, SYMBOLS - 1, 2, 1)
    first, second, *rest = MODELS.items()
    for tries, parts in (first, second, *draw.shuffle(rest)):
        # No sentence has a symbol twice.
        tokens = 1 + torch.rand(3, SYMBOLS - 1, generator=draw).argsort(-1)
        model = SmallModel(draw, **parts).train("dropout" in parts)
        yield f"with a model that {tries}", model, tokens
        if tries == "has no mask":
            yield "with one symbol a sentence", SmallModel(draw, **parts), few


check_no_leak = Exercise(
    no_leak,
    no_leak_cases,
    stars=3,
    minutes=20,
    section="The leakage test: does the future change the past?",
    title="a leakage test",
    returns=("no_leak",),
    mistakes={
        "as-it-comes": (
            "the model is tested in the mode it is in, perhaps with dropout",
            "model.eval()(tokens) → model(tokens)",
        ),
        "left-in-evaluation": (
            "the model is left in evaluation mode; restore its mode",
            "model.train(training) → ",
        ),
        "to-the-last-bit": (
            "exact equality is required; a causal model may round differently",
            "torch.allclose(after, before[:, :start], rtol=2e-5, atol=2e-5) → "
            "torch.equal(after, before[:, :start])",
        ),
        "nan-blind": (
            "a difference of NaN is missed: every comparison with NaN is False",
            "torch.allclose(after, before[:, :start], rtol=2e-5, atol=2e-5) → "
            "not bool(((after - before[:, :start]).abs() > 1e-4).any())",
        ),
        "last-symbol-only": (
            "only the last symbol is changed, which misses leaks from other positions",
            "range(1, tokens.shape[1]) → range(tokens.shape[1])[1:][-1:]",
        ),
        "no-padding": (
            "the changed future never contains padding, which may leak",
            "range(before.shape[-1]) → range(1, before.shape[-1])",
        ),
    },
    hints=(
        "Change all symbols from one position on, and compare the outputs before it.",
        "Try every position and symbol in evaluation mode, and allow for rounding.",
    ),
)

WAYS = (
    "SDPA, boolean",
    "SDPA, float",
    "module, boolean",
    "module, float",
    "-1e4",
    "after",
)


def interface_weights(
    scores: Float[Tensor, " S"], mask: Float[Tensor, " S"], how: str
) -> Float[Tensor, " S"]:
    """Return the weights that are used if a mask is passed in one of six ways.

    Args:
        scores: of one query.
        mask: ones and zeros, as floating-point numbers.
        how: one of WAYS, such as "SDPA, float".
    """
    if how in ("SDPA, float", "module, float"):
        return (scores + mask).softmax(-1)
    if how == "-1e4":
        return scores.masked_fill(~mask.bool(), -1e4).softmax(-1)
    if how == "after":
        return scores.softmax(-1) * mask
    can_attend = mask.bool() if how == "SDPA, boolean" else ~mask.bool()
    return masked_softmax(scores[None], can_attend)[0]


def interface_weights_cases(draw):
    def some(count):
        return torch.tensor(draw.shuffle([1.0, 0.0, *draw.integers(0, 1, count - 2)]))

    # An answer may compute the weights without a graph; values are compared.
    for how in WAYS:
        inputs = torch.zeros(4), torch.tensor([1.0, 1.0, 0.0, 0.0]), how
        yield Case(f"for “{how}” and equal scores", inputs, gradient=False)
    for how in WAYS:
        for name, mask, shift in (
            ("a mask of ones and zeros", some(7), 0),
            ("a mask of zeros only", torch.zeros(5), 0),
            ("a mask of ones only", torch.ones(3), 0),
            ("scores far below zero", some(7), 600),
        ):
            inputs = draw.normal(len(mask)) - shift, mask, how
            yield Case(f"for “{how}” and {name}", inputs, gradient=False)


BOOLEAN = "masked_softmax(scores[None], can_attend)[0]"
READ = 'mask.bool() if how == "SDPA, boolean" else ~mask.bool()'
FLOATS = 'how in ("SDPA, float", "module, float")'

check_interface_weights = Exercise(
    interface_weights,
    interface_weights_cases,
    stars=2,
    minutes=20,
    section="Mask conventions and PyTorch",
    title="the weights that an interface uses",
    returns=("weights",),
    mistakes={
        "module-keeps": (
            "it takes True for “can attend” in `nn.MultiheadAttention`",
            f"{READ} → mask.bool()",
        ),
        "sdpa-drops": (
            "it takes True for “masked out” in SDPA; it means “can attend”",
            f"{READ} → ~mask.bool()",
        ),
        "floats-mask-out": (
            "it masks keys out with a float mask, which is added to the scores instead",
            [
                f'{FLOATS} → False ; how == "SDPA, boolean" → how.startswith("SDPA")',
                f'{FLOATS} → how == "module, float" ; '
                'how == "SDPA, boolean" → how.startswith("SDPA")',
            ],
        ),
        "floats-ignored": (
            "it ignores a float mask, which is added to the scores",
            "(scores + mask) → scores",
        ),
        "empty-nan": (
            "it gives NaN if no key can be attended to; the weights should be zeros",
            f"{BOOLEAN} → scores.masked_fill(~can_attend, -torch.inf).softmax(-1)",
        ),
        "sentinel-zeros": (
            "it gives zeros where all scores are -1e4; equal scores have equal weights",
            "scores.masked_fill(~mask.bool(), -1e4).softmax(-1) → "
            "masked_softmax(scores[None], mask.bool())[0]",
        ),
    },
    hints=("Which of the six ways mask nothing out, and what do they do instead?",),
)
