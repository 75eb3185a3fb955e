"""Metrics: how far an output is from the accepted references.

Source: Levenshtein distance by Wagner and Fischer (1974); BLEU of Papineni et
    al. (2002) as computed by sacrebleu (Post 2018),
    https://arxiv.org/abs/1804.08771; alignment error rate of Och and Ney
    (2003), section 5.1, https://aclanthology.org/J03-1002
Axes: T target symbols, S source symbols
"""

from collections.abc import Collection, Sequence

from jaxtyping import Float
from torch import Tensor

Link = tuple[int, int]  # (target index, source index), both from 0


def edit_distance(ours: Sequence, theirs: Sequence) -> int:
    """Return the fewest insertions, deletions and substitutions between two."""
    row = list(range(len(theirs) + 1))
    for i, a in enumerate(ours, start=1):
        corner, row[0] = row[0], i
        for j, b in enumerate(theirs, start=1):
            corner, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, corner + (a != b)),
            )
    return row[-1]


def match_nearest(output: Sequence, accepted: Collection[Sequence]) -> tuple[int, int]:
    """Return the edits to the nearest reference, and its length.

    Of several that are equally near, the longest counts.
    """
    edits, minus = min((edit_distance(output, r), -len(r)) for r in accepted)
    return edits, -minus


def symbol_error_rate(
    outputs: Sequence[Sequence], references: Sequence[Collection[Sequence]]
) -> float:
    """Return edits per reference symbol, against each nearest reference.

    With phonemes as symbols this is the phoneme error rate. It can exceed 1.

    Raises:
        ValueError: if there is not one list of references for each output.
    """
    require_equal_counts(outputs, references)
    nearest = map(match_nearest, outputs, references)
    edits, symbols = map(sum, zip(*nearest, strict=True))
    return edits / symbols


def sequence_error_rate(
    outputs: Sequence[Sequence], references: Sequence[Collection[Sequence]]
) -> float:
    """Return the share of outputs that equal no accepted reference.

    For pronunciations this is what the field calls the word error rate.
    """
    require_equal_counts(outputs, references)
    wrong = (
        all(tuple(output) != tuple(r) for r in accepted)
        for output, accepted in zip(outputs, references, strict=True)
    )
    return sum(wrong) / len(outputs)


def require_equal_counts(outputs: Sequence, references: Sequence) -> None:
    """Raise ValueError unless there are as many, at least one, of both."""
    if len(outputs) != len(references) or not outputs:
        raise ValueError(
            f"{len(outputs)} outputs cannot be scored "
            f"against {len(references)} references"
        )


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return corpus BLEU from 0 to 100, by sacrebleu with its defaults.

    Scores of different test sets or tokenisations cannot be compared.
    """
    from sacrebleu.metrics import BLEU

    require_equal_counts(outputs, references)
    return BLEU().corpus_score(list(outputs), [list(references)]).score


def extract_links(
    weights: Float[Tensor, "T S"], targets: int, sources: int
) -> set[Link]:
    """Return one link for each target symbol: to its largest weight.

    Rows and columns beyond `targets` and `sources` (the end symbol) make no
    link: a symbol that attends mostly to the end has no link.
    """
    largest = weights[:targets].argmax(dim=-1).tolist()
    return {(t, s) for t, s in enumerate(largest) if s < sources}


def alignment_error_rate(
    predicted: Sequence[Collection[Link]],
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]],
) -> float:
    """Return 1 - (|L∩S| + |L∩P|) / (|L| + |S|), summed over sentences.

    Raises:
        ValueError: if a sure link is not possible, or the counts differ.
    """
    require_equal_counts(predicted, sure)
    require_equal_counts(predicted, possible)
    hits = total = 0
    for links, s, p in zip(predicted, sure, possible, strict=True):
        links, s, p = set(links), set(s), set(p)
        if not s <= p:
            raise ValueError(f"sure links {s - p} are not among the possible")
        hits += len(links & s) + len(links & p)
        total += len(links) + len(s)
    return 1 - hits / total
