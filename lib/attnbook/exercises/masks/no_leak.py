"""Exercise: find the models that know their future.

Chapter: chapters/07_masks
Source: none
Axes: B batch, T positions, V symbols
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import whole
from attnbook.exercises.masks import models
from attnbook.exercises.masks.leakage import cut_off, judge
from attnbook.solutions.masks import no_leak

B, T = 3, 5


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """The plainest models first, then sound and leaking ones in any order."""

    def case(tries, training=False, tokens=None, **parts):
        model = models.Reader(rng, **parts).train(training)
        if tokens is None:  # no sentence has a symbol twice
            drawn = torch.rand(B, models.SYMBOLS - 1, generator=rng)
            tokens = 1 + drawn.argsort(-1)[:, :T]
        return Case(f"with a model that {tries}", (model, tokens))

    few = whole(rng, 1, models.SYMBOLS - 1, 2, 1)
    cases = (
        case("sees the past only"),
        case("hides nothing", see=models.everything),
        case("sees the next symbol", see=models.shifted),
        case("is given one symbol", tokens=few, see=models.everything),
        case("has a window of 3", see=models.window),
        case("leaks at the first position", see=models.hole(0, -1)),
        case("leaks at the last position but one", see=models.hole(-2, -1)),
        case("leaks from position 3 to position 1", see=models.hole(1, 3)),
        case("leaks in one sentence of the batch", see=models.last_sentence),
        case("leaks from one sentence to the next", mix=models.neighbour),
        case("takes the mean over all positions away", mix=models.centred),
        case("leaks where padding comes", see=models.padding_seen),
        case("counts what is no padding", mix=models.counted),
        case("gives NaN if padding comes", mix=models.undone),
        case("leaks where a symbol comes again", see=models.twins_seen),
        case("leaks very little", weigh=models.sentinel),
        case("is sound but for rounding", mix=models.rounded),
        case("is sound, in training, with dropout", True, dropout=0.5),
        case("is sound in evaluation, and comes in training", True,
             mix=models.centred_in_training),
        case("leaks in evaluation, and comes in training", True,
             see=models.everything_in(False)),
    )  # fmt: skip
    order = (3 + torch.randperm(len(cases) - 3, generator=rng)).tolist()
    return (*cases[:3], *(cases[i] for i in order))


check_no_leak = Exercise(
    title="a test that finds leaks",
    stars=3,
    minutes=20,
    section="The leakage test",
    solution=no_leak,
    returns=("sound",),
    draw=draw,
    allowed="Everything is allowed; `attnbook.diagnose` has an answer in it.",
    mistakes=(
        Mistake(
            "always-sound",
            "every model is called sound",
            lambda model, tokens: True,
        ),
        Mistake(
            "always-leaking",
            "every model is called leaking",
            lambda model, tokens: False,
        ),
        Mistake(
            "inverted",
            "the answer is upside down: True is for a model that does not leak",
            lambda model, tokens: not judge(model, tokens),
        ),
        Mistake(
            "as-it-comes",
            "the model is judged in training mode if it comes in it, where "
            "dropout alone moves the past",
            lambda model, tokens: judge(model, tokens, mode=None),
        ),
        Mistake(
            "left-in-evaluation",
            "the model is left in evaluation mode; one that was being trained "
            "would go on without dropout",
            lambda model, tokens: judge(model.eval(), tokens, mode=None),
        ),
        Mistake(
            "left-in-training",
            "the model is left in training mode, whatever mode it came in",
            lambda model, tokens: (judge(model, tokens), model.train())[0],
        ),
        Mistake(
            "to-the-last-bit",
            "a sound model may round differently when its future changes; "
            "equal to the last bit is too much to ask",
            lambda model, tokens: judge(model, tokens, same=torch.equal),
        ),
        Mistake(
            "too-generous",
            "a small leak is a leak: the tolerance is far above rounding",
            lambda model, tokens: judge(
                model, tokens, same=lambda a, b: torch.allclose(a, b, atol=0.1)
            ),
        ),
        Mistake(
            "predictions-only",
            "only the likeliest symbols are compared, and a leak may move "
            "logits without changing them",
            lambda model, tokens: judge(
                model,
                tokens,
                same=lambda a, b: torch.equal(a.argmax(-1), b.argmax(-1)),
            ),
        ),
        Mistake(
            "nan-blind",
            "a difference of NaN goes unseen: every comparison with NaN is "
            "False",
            lambda model, tokens: judge(
                model,
                tokens,
                same=lambda a, b: not bool(((a - b).abs() > 1e-4).any()),
            ),
        ),
        Mistake(
            "present-too",
            "outputs are compared that may move: those at a changed symbol, "
            "or after one",
            lambda model, tokens: judge(model, tokens, keep=1),
        ),
        Mistake(
            "one-cut",
            "the future is cut at one place only, and a leak within either "
            "part is not seen",
            lambda model, tokens: judge(model, tokens, cuts=[T // 2]),
        ),
        Mistake(
            "last-symbol-only",
            "only the last symbol is changed, and a leak from elsewhere is "
            "not seen",
            lambda model, tokens: judge(model, tokens, cuts=[-1]),
        ),
        Mistake(
            "first-sentence-only",
            "only the first sentence is looked at",
            lambda model, tokens: judge(
                model,
                tokens,
                same=lambda a, b: torch.allclose(a[:1], b[:1], 1e-5, 1e-5),
            ),
        ),
        Mistake(
            "no-padding",
            "the changed future never holds padding, and padding is a way to "
            "leak",
            lambda model, tokens: judge(
                model, tokens, symbols=range(1, models.SYMBOLS)
            ),
        ),
        Mistake(
            "only-padding",
            "the future is changed to padding and to nothing else",
            lambda model, tokens: judge(model, tokens, symbols=[0]),
        ),
        Mistake(
            "cut-off",
            "the future is cut off, never changed: what it might have held "
            "is not tried",
            lambda model, tokens: cut_off(model, tokens),
        ),
    ),
)
