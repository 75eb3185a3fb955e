"""Exercise: a test that finds models with access to the future.

Axes: B batch, T positions, V symbols
"""

import copy
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.exercises.masks import models


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


B, T = 3, 5


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """The plainest models first, then sound and leaking ones in any order."""

    def case(tries, training=False, tokens=None, **parts):
        model = models.SmallModel(rng, **parts).train(training)
        if tokens is None:  # no sentence has a symbol twice
            drawn = torch.rand(B, models.SYMBOLS - 1, generator=rng)
            tokens = 1 + drawn.argsort(-1)[:, :T]
        return Case(f"with a model that {tries}", (model, tokens))

    few = draw_integers(rng, 1, models.SYMBOLS - 1, 2, 1)
    cases = (
        case("attends to the past only"),
        case("has no mask", mask=models.mask_nothing),
        case("attends to the next symbol", mask=models.mask_after_next),
        case("is given one symbol", tokens=few, mask=models.mask_nothing),
        case("has a window of 3", mask=models.mask_outside_window),
        case("leaks at the first position", mask=models.leak_at(0, -1)),
        case("leaks at the last position but one", mask=models.leak_at(-2, -1)),
        case("leaks from position 3 to position 1", mask=models.leak_at(1, 3)),
        case("leaks in one sentence of the batch", mask=models.leak_in_last),
        case("leaks from one sentence to the next", mix=models.mix_sequences),
        case("subtracts the mean over all positions", mix=models.subtract),
        case("leaks at padding", mask=models.leak_at_padding),
        case("counts the symbols that are not padding", mix=models.add_length),
        case("gives NaN if there is padding", mix=models.spread_nan),
        case("attends to later copies of the query's symbol",
             mask=models.leak_at_repeats),
        case("leaks very little", weigh=models.softmax_with_sentinel),
        case("is causal up to rounding", mix=models.round_hidden),
        case("is causal, in training mode with dropout", True, dropout=0.5),
        case("is causal in evaluation mode, given in training mode", True,
             mix=models.subtract_in_training),
        case("leaks in evaluation mode, given in training mode", True,
             mask=models.mask_nothing_in(False)),
    )  # fmt: skip
    order = (3 + torch.randperm(len(cases) - 3, generator=rng)).tolist()
    return (*cases[:3], *(cases[i] for i in order))


def are_close(a: Tensor, b: Tensor) -> bool:
    """Tell whether two outputs are equal but for rounding.

    Rounding stays below a fifth of the bound, and what a leak changes is more
    than five times the bound: test_decisions.py measures both.
    """
    return torch.allclose(a, b, rtol=2e-5, atol=2e-5)


def is_unaffected(
    model: nn.Module,
    tokens: Tensor,
    same: Callable[[Tensor, Tensor], bool] = are_close,
    keep: int = 0,
    cuts: Iterable[int] | None = None,
    symbols: Iterable[int] | None = None,
    mode: bool | None = False,
) -> bool:
    """Tell whether the past of a model stays when its future changes.

    Args:
        model: maps tokens (B, T) to logits (B, T, V).
        tokens: a batch to begin with.
        same: tells whether two outputs are.
        keep: how many changed positions are compared as well.
        cuts: where the future begins; everywhere unless given.
        symbols: what the future is changed to; all V unless given.
        mode: training (True), evaluation (False) or as it comes (None).
    """
    if mode is not None:
        model = copy.deepcopy(model).train(mode)
    before = model(tokens)
    for cut in range(1, tokens.shape[1]) if cuts is None else cuts:
        for symbol in range(before.shape[-1]) if symbols is None else symbols:
            changed, at = tokens.clone(), cut % tokens.shape[1]
            changed[:, at:] = symbol
            after = model(changed)
            if not same(after[:, : at + keep], before[:, : at + keep]):
                return False
    return True


def compare_prefixes(model: nn.Module, tokens: Tensor) -> bool:
    """Tell whether a beginning alone gives what it gives in the whole."""
    model = copy.deepcopy(model).eval()
    whole = model(tokens)
    return all(
        are_close(model(tokens[:, :n]), whole[:, :n]) for n in range(1, tokens.shape[1])
    )


check_no_leak = Exercise(
    title="a leakage test",
    stars=3,
    minutes=20,
    section="The leakage test: does the future change the past?",
    solution=no_leak,
    returns=("no_leak",),
    draw=draw,
    allowed="Everything is allowed; `attnbook.diagnose` has an answer in it.",
    mistakes=(
        Mistake(
            "always-sound",
            "always no leak",
            "it reports no leak for every model",
            lambda model, tokens: True,
        ),
        Mistake(
            "always-leaking",
            "always a leak",
            "it reports a leak for every model",
            lambda model, tokens: False,
        ),
        Mistake(
            "inverted",
            "inverted answer",
            "the answer is inverted: True should mean that the model does not leak",
            lambda model, tokens: not is_unaffected(model, tokens),
        ),
        Mistake(
            "as-it-comes",
            "not switched to evaluation mode",
            "the model is tested in the mode it is in; in training mode, "
            "dropout alone changes the past outputs",
            lambda model, tokens: is_unaffected(model, tokens, mode=None),
        ),
        Mistake(
            "left-in-evaluation",
            "left in evaluation mode",
            "the model is left in evaluation mode; restore the mode it was in",
            lambda model, tokens: is_unaffected(model.eval(), tokens, mode=None),
        ),
        Mistake(
            "left-in-training",
            "left in training mode",
            "the model is left in training mode; restore the mode it was in",
            lambda model, tokens: (is_unaffected(model, tokens), model.train())[0],
        ),
        Mistake(
            "to-the-last-bit",
            "exact equality required",
            "exact equality is required; a causal model may round differently "
            "when its future changes",
            lambda model, tokens: is_unaffected(model, tokens, same=torch.equal),
        ),
        Mistake(
            "too-generous",
            "tolerance too large",
            "the tolerance is far above rounding errors, so a small leak is missed",
            lambda model, tokens: is_unaffected(
                model, tokens, same=lambda a, b: torch.allclose(a, b, atol=0.1)
            ),
        ),
        Mistake(
            "predictions-only",
            "only predictions compared",
            "only the most probable symbols are compared; a leak may change "
            "the logits without changing the most probable symbols",
            lambda model, tokens: is_unaffected(
                model,
                tokens,
                same=lambda a, b: torch.equal(a.argmax(-1), b.argmax(-1)),
            ),
        ),
        Mistake(
            "nan-blind",
            "NaN not detected",
            "a difference of NaN is not detected: every comparison with NaN is False",
            lambda model, tokens: is_unaffected(
                model,
                tokens,
                same=lambda a, b: not bool(((a - b).abs() > 1e-4).any()),
            ),
        ),
        Mistake(
            "present-too",
            "changed positions compared",
            "outputs at or after the changed symbol are compared; these may change",
            lambda model, tokens: is_unaffected(model, tokens, keep=1),
        ),
        Mistake(
            "one-cut",
            "one position tried",
            "the future is changed from a single position on, so a leak "
            "between two earlier positions, or between two later ones, is "
            "missed",
            lambda model, tokens: is_unaffected(model, tokens, cuts=[T // 2]),
        ),
        Mistake(
            "last-symbol-only",
            "only the last symbol changed",
            "only the last symbol is changed, so leaks from other positions are missed",
            lambda model, tokens: is_unaffected(model, tokens, cuts=[-1]),
        ),
        Mistake(
            "first-sentence-only",
            "first sentence only",
            "only the first sentence of the batch is compared",
            lambda model, tokens: is_unaffected(
                model,
                tokens,
                same=lambda a, b: torch.allclose(a[:1], b[:1], 2e-5, 2e-5),
            ),
        ),
        Mistake(
            "no-padding",
            "padding never tried",
            "the changed future never contains padding, and a model may leak "
            "through padding",
            lambda model, tokens: is_unaffected(
                model, tokens, symbols=range(1, models.SYMBOLS)
            ),
        ),
        Mistake(
            "only-padding",
            "only padding tried",
            "the future is only ever changed to padding; other symbols may "
            "leak as well",
            lambda model, tokens: is_unaffected(model, tokens, symbols=[0]),
        ),
        Mistake(
            "cut-off",
            "future cut off, not changed",
            "the future is cut off instead of changed, so a leak that occurs "
            "only with certain later symbols is missed",
            lambda model, tokens: compare_prefixes(model, tokens),
        ),
    ),
)
