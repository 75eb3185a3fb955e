"""The peak memory of attention, and what it saves for the backward pass.

The inputs are not counted; the output is. Formulas for chapter 4's `attend`
without a mask, as PyTorch runs it.

Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values
"""

from dataclasses import replace

from attnbook.profiling.sizes import Sizes


def count_peak_forward(sizes: Sizes) -> int:
    """Return the most bytes at once without gradients.

    Scores beside scaled queries; scores beside weights; weights beside output.
    """
    s = sizes
    return s.scores + max(s.query, s.scores, s.output)


def count_saved_for_backward(sizes: Sizes) -> int:
    """Return the bytes saved for the backward pass: weights, scaled queries."""
    return sizes.scores + sizes.query


def count_peak_training(sizes: Sizes) -> int:
    """Return the most bytes at once, forwards and backwards.

    In the backward pass, weights, their gradient and the scores' gradient exist
    at once, with the scaled queries, the values' gradient and the output.
    Where the scores are small, the last gradients need more.
    """
    s = sizes
    softmax = 3 * s.scores + s.query + s.value + s.output
    last = s.scores + 2 * s.query + s.key + s.value + s.output
    return max(softmax, last)


def count_peak_query_chunks(sizes: Sizes, rows: int) -> int:
    """Return the peak bytes of `attend_in_query_chunks`, without gradients.

    The last chunk's scores and weights beside the other chunks' outputs; or
    all outputs beside their copy in one piece.
    """
    starts = range(0, sizes.T, rows)
    most = 2 * sizes.output
    for start in starts[-2:]:
        height = min(rows, sizes.T - start)
        before = sizes.output * start // sizes.T
        most = max(most, before + count_peak_forward(replace(sizes, T=height)))
    return most
