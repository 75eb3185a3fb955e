"""What the exercises on cost share: how sizes are drawn, and what is allowed.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

import torch

from attnbook.exercises.inputs import whole

ALLOWED = "Everything is allowed but `attnbook.profiling`."


def sizes(
    rng: torch.Generator, B: int = 0, H: int = 0, G: int = 0, T: int = 0
) -> dict[str, int]:
    """Return random sizes of attention; given sizes are kept.

    Keys outnumber queries, widths and heads, and no two sizes are equal.
    """

    def drawn(low: int, high: int) -> int:
        return int(whole(rng, low, high, 1))

    groups = G or drawn(2, 4)
    return {
        "B": B or drawn(5, 9),
        "H": H or groups * drawn(3, 5),
        "G": groups,
        "T": T or drawn(100, 300),
        "S": drawn(400, 900),
        "D": drawn(30, 60),
        "E": drawn(61, 90),
    }
