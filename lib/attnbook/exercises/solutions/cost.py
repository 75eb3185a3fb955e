"""Operations, bytes, intensity, memory and time of attention, from its sizes.

Source: intensity and the bound: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""


def flops(B: int, H: int, G: int, T: int, S: int, D: int, E: int) -> list[int]:
    """Return the operations of attention's products.

    Forwards; backwards, with the weights kept; backwards, with the scores
    computed once more.
    """
    scores, values = 2 * B * H * T * S * D, 2 * B * H * T * S * E
    back = 2 * scores + 2 * values
    return [scores + values, back, back + scores]


def moved(
    B: int, H: int, G: int, T: int, S: int, D: int, E: int, itemsize: int
) -> list[int]:
    """Return the bytes of scores, softmax and values, and of all in one."""
    query, output = B * H * T * D, B * H * T * E
    key, value, scores = B * G * S * D, B * G * S * E, B * H * T * S
    steps = query + key + scores, 2 * scores, scores + value + output
    return [itemsize * n for n in (*steps, query + key + value + output)]


def intensity(
    B: int, H: int, G: int, T: int, S: int, D: int, itemsize: int
) -> float:
    """Return the operations of both products for each byte, all in one."""
    there = flops(B, H, G, T, S, D, D)[0]
    return there / moved(B, H, G, T, S, D, D, itemsize)[3]


def peak(
    B: int, H: int, T: int, S: int, D: int, itemsize: int, rows: int
) -> list[int]:
    """Return the peak memory, whole and in query chunks of some rows."""
    strip = min(rows, T)
    whole = T * S + max(T * S, T * D)
    cut = T * D + 2 * strip * S
    return [B * H * itemsize * n for n in (whole, cut)]


def time_bound(
    flops: list[int], moved: list[int], rate: float, bandwidth: float
) -> float:
    """Return the least time for steps that run one after the other."""
    steps = zip(flops, moved, strict=True)
    return sum(max(f / rate, b / bandwidth) for f, b in steps)
