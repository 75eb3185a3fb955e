"""What is measured: one row a shape, a pass and a kind of attention.

Source: the setting (16k tokens, H · D = 2048, N from 512 to 16k) and the count
    of operations: Shah et al. (2024), section 4.1,
    https://arxiv.org/abs/2407.08608
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
"""

from dataclasses import asdict, dataclass, replace
from itertools import product

TOKENS = 16 * 1024
COLUMNS = 2048
WINDOW = 1024
SHORT = 1024


@dataclass(frozen=True)
class Row:
    """A measurement.

    Attributes:
        direction: "fwd" or "bwd".
        dtype: name of the precision.
        D: width of query, key and value.
        N: keys; as many queries, but one where texts are decoded.
        causal: whether keys after the query are hidden.
        case: "plain", "window", "alibi", "grouped" or "decoding".
        tokens: B · N.
        columns: H · D.
    """

    direction: str
    dtype: str
    D: int
    N: int
    causal: bool = False
    case: str = "plain"
    tokens: int = TOKENS
    columns: int = COLUMNS

    @property
    def shape(self) -> tuple[int, int, int, int, int, int]:
        """Return B, H, G, T, S, D."""
        heads = self.columns // self.D
        groups = heads // 4 if self.case in ("grouped", "decoding") else heads
        queries = 1 if self.case == "decoding" else self.N
        batch = max(1, self.tokens // self.N)
        return batch, heads, max(1, groups), queries, self.N, self.D

    @property
    def window(self) -> int | None:
        """Return how many keys a query sees, if not all."""
        return min(WINDOW, self.N // 2) if self.case == "window" else None

    @property
    def short(self) -> bool:
        """Return whether launching the kernels takes as long as they run."""
        return self.N <= SHORT or self.shape[3] == 1

    @property
    def flops(self) -> float:
        """Return operations: two products forwards, five backwards.

        Of a causal text half the pairs are counted, as everybody does.
        """
        B, H, _, T, S, D = self.shape
        pairs: float = T * S
        if self.window:
            pairs = self.window * S - self.window * (self.window - 1) // 2
        elif self.causal:
            pairs = T * S / 2
        return 4.0 * B * H * D * pairs * (1 if self.direction == "fwd" else 2.5)

    @property
    def bytes(self) -> int:
        """Return bytes that a forward pass reads and writes at least.

        Every number once: query, key, value and output.
        """
        B, H, G, T, S, D = self.shape
        size = 4 if self.dtype == "float32" else 2
        return size * B * D * 2 * (H * T + G * S)

    @property
    def key(self) -> str:
        """Return what a stored row is found by."""
        return "/".join(map(str, asdict(self).values()))


def list_grid(directions, dtypes, widths, lengths, **more) -> list[Row]:
    """Return every combination, causal and full."""
    causal = (False, True)
    found = product(directions, dtypes, widths, lengths, causal)
    return [Row(*each, **more) for each in found]


def list_special(directions, dtypes, widths, long=32 * 1024, biased=4096) -> list[Row]:
    """Return the rows of window, ALiBi, grouped heads and decoding."""
    rows = []
    for direction, dtype, D in product(directions, dtypes, widths):
        rows.append(Row(direction, dtype, D, long, True, "window", tokens=long))
        rows.append(Row(direction, dtype, D, biased, True, "alibi"))
        rows.append(Row(direction, dtype, D, biased, True, "grouped"))
        if direction == "fwd":
            rows.append(
                Row(
                    direction,
                    dtype,
                    D,
                    8192,
                    False,
                    "decoding",
                    tokens=32 * 8192,
                )
            )
    return rows


def restrict_to_turing(plan: list[Row]) -> list[Row]:
    """Return what of a plan a T4 can run: half precision, rows of 64."""
    kept = [replace(row, dtype="float16") for row in plan if row.D <= 64]
    return list(dict.fromkeys(kept))


BOTH = ("fwd", "bwd")
SMALL = {"tokens": 64, "columns": 32}
PLANS = {
    "quick": list_grid(BOTH, ("bfloat16",), (64, 128), (1024, 4096, 16384))
    + list_special(("fwd",), ("bfloat16",), (64, 128)),
    "full": list_grid(
        BOTH, ("bfloat16", "float16"), (64, 128),
        (512, 1024, 2048, 4096, 8192, 16384),
    )
    + list_special(BOTH, ("bfloat16",), (64, 128)),
    "tiny": list_grid(BOTH, ("float32",), (16,), (32,), **SMALL)
    + [
        Row("fwd", "float32", 8, 32, True, case, **SMALL)
        for case in ("window", "alibi", "grouped")
    ]
    + [Row("fwd", "float32", 8, 32, False, "decoding", **SMALL)],
}  # fmt: skip
# Seconds after which no other row is begun; a second run does the rest.
LIMITS = {"quick": 210, "full": 570, "tiny": 570}
