"""Exercise: the alignment error rate of several sentences.

Source: Och and Ney (2003), section 5.1, https://aclanthology.org/J03-1002
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers
from attnbook.training import metrics


def draw_links(rng: torch.Generator) -> tuple[Case, ...]:
    """Perfect and empty ones, then sentences whose counts differ."""

    def sentence(targets, sources, wild):
        sure = {(t, t % sources) for t in range(targets)}
        extra = zip(
            draw_integers(rng, 0, targets - 1, 3).tolist(),
            draw_integers(rng, 0, sources - 1, 3).tolist(),
            strict=True,
        )
        possible = sure | set(extra)
        wrong = [(t, (t + 1) % sources) for t in range(wild)]
        return {*sorted(possible)[1:], *wrong}, sure, possible

    def case(tries, *sentences):
        given = tuple(list(x) for x in zip(*sentences, strict=True))
        counts = [sum(map(len, links)) for links in given]
        words = "{} predicted, {} sure, {} possible".format(*counts)
        return Case(f"{tries} ({words})", given)

    one, two, three = sentence(4, 3, 1), sentence(7, 5, 3), sentence(2, 6, 2)
    sure, possible = {(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)}
    return (
        case("with the right links", (sure, sure, sure)),
        case("with the possible links", (possible, sure, possible)),
        case("with no link at all", (set(), sure, possible)),
        case("with only wrong links", ({(2, 0)}, sure, possible)),
        case("with too few links", ({(0, 0)}, sure, possible)),
        case("with links of all kinds", one),
        case("on three sentences", one, two, three),
    )


def count_links(rate):
    """Return a rate of the counts |L∩S|, |L∩P|, |L| and |S|."""

    def answer(predicted, sure, possible):
        triples = list(zip(predicted, sure, possible, strict=True))
        return rate(
            sum(len(a & s) for a, s, p in triples),
            sum(len(a & p) for a, s, p in triples),
            sum(len(a) for a, s, p in triples),
            sum(len(s) for a, s, p in triples),
        )

    return answer


def average_over_sentences(predicted, sure, possible):
    """Return the mean of the sentences' rates, each counted alike."""
    rates = [
        metrics.alignment_error_rate([a], [s], [p])
        for a, s, p in zip(predicted, sure, possible, strict=True)
    ]
    return sum(rates) / len(rates)


check_alignment_error = Exercise(
    title="alignment error rate of a corpus",
    stars=2,
    minutes=10,
    section="Alignment error rate",
    solution=metrics.alignment_error_rate,
    key_line="hits += len(links & s) + len(links & p)",
    returns=("rate",),
    draw=draw_links,
    allowed="Everything is allowed but `attnbook.training.metrics`.",
    mistakes=(
        Mistake(
            "score-not-error",
            "accuracy instead of error",
            "it returns 1 minus the error rate",
            count_links(lambda s, p, a, n: (s + p) / (a + n)),
        ),
        Mistake(
            "sure-only",
            "possible links counted as errors",
            "a predicted link that is possible, but not sure, is counted as an error",
            count_links(lambda s, p, a, n: 1 - 2 * s / (a + n)),
        ),
        Mistake(
            "possible-only",
            "sure links not counted twice",
            "every possible link that is found counts twice; only a sure one "
            "should count twice, as sure and as possible",
            count_links(lambda s, p, a, n: 1 - 2 * p / (a + n)),
        ),
        Mistake(
            "precision-error",
            "precision only",
            "it measures only whether the predicted links are possible, not "
            "whether the sure links were found",
            count_links(lambda s, p, a, n: 1 - p / a if a else 0.0),
        ),
        Mistake(
            "recall-error",
            "recall only",
            "it measures only whether the sure links were found, not whether "
            "the predicted links are possible",
            count_links(lambda s, p, a, n: 1 - s / n),
        ),
        Mistake(
            "mean-of-sentences",
            "mean of the sentences' rates",
            "it averages the rates of the sentences; the counts should be "
            "summed over all sentences first, so that a long sentence weighs "
            "more",
            average_over_sentences,
        ),
        Mistake(
            "first-sentence",
            "first sentence only",
            "only the first sentence is counted",
            lambda a, s, p: metrics.alignment_error_rate(a[:1], s[:1], p[:1]),
        ),
        Mistake(
            "not-divided",
            "count instead of a rate",
            "it returns a number of links; it should be divided by the number "
            "of predicted and sure links",
            count_links(lambda s, p, a, n: a + n - s - p),
        ),
        Mistake(
            "percent",
            "percentage instead of a fraction",
            "it returns a percentage; the rate should lie between 0 and 1",
            count_links(lambda s, p, a, n: 100 * (1 - (s + p) / (a + n))),
        ),
    ),
)
