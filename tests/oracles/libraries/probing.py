"""What an attention function does, found by calling it, in words for a table.

A group of libraries has a file of probes, which runs in an environment of its
own and prints the words as JSON. Its functions take and give NumPy arrays with
axes (B, H, T, D); masks reach the library as they are.
"""

import json
import warnings

import numpy as np

LOWEST = np.finfo(np.float32).min


def try_call(function, *inputs, **options):
    """Return the result as an array, or None if the library refuses the call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(function(*inputs, **options), np.float32)
        except Exception:
            return None


def name_result(result, known, other="something else"):
    """Return the name of the array that equals the result."""
    if result is None:
        return "refused"
    for name, expected in known.items():
        expected = np.broadcast_to(np.float32(expected), result.shape)
        if np.allclose(result, expected, atol=2e-3, equal_nan=True):
            return name
    return other


def draw(*shape):
    """Return normal numbers, the same in each call."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def softmax(scores):
    """Return the softmax over the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def list_seen_keys(attend, T, S, **options):
    """Return each query's keys with weight, from equal scores; None if refused."""
    width = max(T, S)
    query, key = np.zeros((1, 1, T, width)), np.zeros((1, 1, S, width))
    value = np.eye(S, width)[None, None]
    inputs = (x.astype(np.float32) for x in (query, key, value))
    weights = try_call(attend, *inputs, **options)
    if weights is None:
        return None
    return [
        "NaN" if np.isnan(row).any() else [s for s in range(S) if row[s] > 1e-3]
        for row in weights[0, 0]
    ]


def describe_causal(attend):
    """Return how a causal mask is aligned where there are fewer queries or more."""
    words = {}
    for T, S in (2, 5), (5, 2):
        found = list_seen_keys(attend, T, S, causal=True)
        top = [[s for s in range(S) if s <= t] for t in range(T)]
        bottom = [[s for s in range(S) if s <= t + S - T] for t in range(T)]
        known = {
            "refused": None,
            "top left": top,
            "bottom right": bottom,
            "bottom right, empty rows NaN": [keys or "NaN" for keys in bottom],
            "bottom right, empty rows see all keys": [
                keys or [*range(S)] for keys in bottom
            ],
        }
        names = (name for name, keys in known.items() if keys == found)
        words[f"causal, {T} queries, {S} keys"] = next(names, str(found))
    return words


def describe_attention(attend, axes, masks=True, causal=True, grouped=True, width=True):
    """Return the words for `attend(query, key, value, mask=None, causal=False)`."""
    query, key, value = draw(2, 4, 3, 8), draw(2, 4, 5, 8), draw(2, 4, 5, 8)[..., ::-1]
    scores = query @ key.swapaxes(-1, -2)
    words = {
        "scale": name_result(
            try_call(attend, query, key, value.copy()),
            {"1/√D": softmax(scores / 8**0.5) @ value, "none": softmax(scores) @ value},
        )
    }
    assert words["scale"] in ("1/√D", "none"), f"{attend} is no attention: {words}"
    words["axes"] = axes
    two = np.zeros((1, 1, 1, 4), np.float32), np.zeros((1, 1, 2, 4), np.float32)
    rows = np.float32([[10] * 4, [20] * 4])[None, None]
    if masks:
        for name, dtype in (
            *(("True", bool), ("integer 1", np.int32)),
            ("float 1", np.float32),
        ):
            mask = np.array([[1, 0]], dtype)
            words[name] = name_result(
                try_call(attend, *two, rows, mask=mask),
                {"attends": 10, "masked out": 20, "added": 12.689, "ignored": 15},
            )
        # What hides a key, in a row of True or of zeros.
        flip = words["True"] == "masked out"
        empty = {
            "empty row, boolean": np.full((1, 2), flip),
            "empty row, -inf": np.full((1, 2), -np.inf, np.float32),
            "empty row, lowest number": np.full((1, 2), LOWEST, np.float32),
        }
        for name, mask in empty.items():
            if words["float 1"] == "attends" and mask.dtype != bool:
                words[name] = "read as True"
                continue
            words[name] = name_result(
                try_call(attend, *two, rows, mask=mask),
                {"zeros": 0, "mean of the values": 15, "NaN": np.nan},
            )
        broken = rows.copy()
        broken[0, 0, 1] = np.nan
        words["NaN in a masked value"] = name_result(
            try_call(attend, *two, broken, mask=np.array([[True, False]]) ^ flip),
            {"not read": 10, "NaN": np.nan},
        )
    if causal:
        words |= describe_causal(attend)
    if causal and masks:
        mask = np.array([[1, 1, 1], [0, 1, 1], [0, 1, 1]], bool) ^ flip
        found = list_seen_keys(attend, 3, 3, mask=mask, causal=True)
        words["mask beside causal"] = {
            "None": "refused",
            "[[0], [1], [1, 2]]": "both apply",
            "[[0], [0, 1], [0, 1, 2]]": "mask ignored",
            "[[0, 1, 2], [1, 2], [1, 2]]": "causal ignored",
            "['NaN', 'NaN', 'NaN']": "NaN",
        }.get(str(found), str(found))
    if grouped:
        values = np.float32([10, 20])[None, :, None, None] * np.ones((1, 2, 3, 4))
        words["4 heads on 2"] = name_result(
            try_call(attend, draw(1, 4, 3, 4), draw(1, 2, 3, 4), np.float32(values)),
            {
                "blocks": np.float32([10, 10, 20, 20])[None, :, None, None],
                "in turn": np.float32([10, 20, 10, 20])[None, :, None, None],
            },
        )
    if width:
        wide = draw(2, 4, 5, 6)
        expected = softmax(scores * (8**-0.5 if words["scale"] == "1/√D" else 1)) @ wide
        words["values of another width"] = name_result(
            try_call(attend, query, key, wide), {"work": expected}
        )
    return words


def describe_window(attend):
    """Return which keys a query sees, relative to itself."""
    found = list_seen_keys(attend, 9, 9)
    if found is None:
        return "refused"
    first, last = found[4][0] - 4, found[4][-1] - 4
    return f"{len(found[4])} keys: {first} to {last:+d}".replace("+0", "0")


def describe_cap(attend):
    """Return whether a mask is added before or after a soft cap of the scores."""
    inputs = np.zeros((1, 1, 1, 4)), np.zeros((1, 1, 2, 4)), np.eye(2, 4)[None, None]
    inputs = (x.astype(np.float32) for x in inputs)
    found = try_call(attend, *inputs, mask=np.array([[True, False]]), softcap=2.0)
    if found is None:
        return "refused"
    return "cap, then mask" if found[0, 0, 0, 1] < 1e-6 else "mask, then cap"


def describe_weights(weights, heads):
    """Return whether weights are averaged, and if they are after dropout."""
    weights = np.asarray(weights, np.float32)
    kept = np.allclose(weights.sum(-1), 1, atol=1e-3)
    return {
        "weights": "each head" if weights.shape[1:2] == (heads,) else "averaged",
        "weights and dropout": "before dropout" if kept else "after dropout",
    }


def describe_rotation(rotate, width=64):
    """Return which columns of (T, D) are rotated together, and how many."""
    one = np.zeros((4, width), np.float32)
    one[:, 0] = 1
    turned = try_call(rotate, one)
    if turned is None:
        return {"rotary pairs": "refused"}
    partner = [d for d in range(1, width) if abs(turned[1, d]) > 1e-3]
    ones = np.ones((4, width), np.float32)
    # The slowest pairs turn little: far from the start it shows.
    count = int((np.abs(rotate(ones) - ones) > 0).any(0).sum())
    names = {1: "adjacent (0, 1)", width // 2: f"halves (0, {width // 2})"}
    pair = names.get(partner[0], f"(0, {partner[0]})")
    return {"rotary pairs": pair, "rotated columns of 64": str(count)}


def describe_sinusoids(table):
    """Return where a table (T, D) of sinusoidal positions has its cosines."""
    first = np.asarray(table, np.float32)[0]
    half = len(first) // 2
    return name_result(
        first,
        {
            "sine and cosine in turn": [0, 1] * half,
            "sines, then cosines": [0] * half + [1] * half,
            "cosines, then sines": [1] * half + [0] * half,
        },
    )


def print_words(libraries):
    """Print a group's words: name → (version, words)."""
    found = {name: {"version": v, **words} for name, (v, words) in libraries.items()}
    print(json.dumps(found, ensure_ascii=False))
