"""The mask builder: combine masks, see their weights, and copy the code.

Source: the masks are those of `attnbook.masks`
Axes: T queries, S keys
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import traitlets
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook import masks
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_integer
from attnbook.widgets.soft_lookup import draw_hidden_coordinates

HERE = Path(__file__)
MOST, PARTS = 10, 4
KINDS = (
    "causal",
    "padding",
    "window",
    "dilated",
    "prefix",
    "sinks",
    "document",
)
SCORES = [
    [round(x, 2) for x in draw_hidden_coordinates(row, MOST)] for row in range(MOST)
]
START = ({"kind": "causal"}, {"kind": "padding"})


def check_part(part: Mapping) -> dict:
    """Return a part with all it may say, or say what is wrong with it."""
    known = {"kind", "join", "negated", "size", "step"}
    if not isinstance(part, Mapping) or "kind" not in part or {*part} - known:
        raise ValueError(
            f"a part needs a kind, and may have {sorted(known - {'kind'})}; "
            f"this one is {part!r:.60}"
        )
    for name, value, choice in (
        ("kind", part["kind"], KINDS),
        ("join", part.get("join", "and"), ("and", "or")),
    ):
        if value not in choice:
            raise ValueError(
                f"{name} must be one of {', '.join(choice)}; not {value!r:.30}"
            )
    return {
        "kind": part["kind"],
        "join": part.get("join", "and"),
        "negated": bool(part.get("negated", False)),
        "size": read_integer(part.get("size", 3), 1, MOST, "size"),
        "step": read_integer(part.get("step", 2), 1, MOST, "step"),
    }


class MaskBuilder(BookWidget):
    """Masks combined from left to right, for two sequences.

    Args:
        parts: 1 to 4 dicts with a kind (see KINDS), and if wanted: join, "and"
            or "or", to what is left of it; negated; size (of a window, a
            prefix, sinks, the first document) and step (of dilation).
        T: queries, 1 to 10; the last one is at the position of the last key.
        S: keys, 1 to 10.
        lengths: of the two sequences, for padding.
        text: which of the two is shown, 0 or 1.

    Raises:
        ValueError: if a part or a number is none, or too large.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    parts = traitlets.List().tag(sync=True)
    T = traitlets.Int().tag(sync=True)
    S = traitlets.Int().tag(sync=True)
    lengths = traitlets.List().tag(sync=True)
    text = traitlets.Int().tag(sync=True)
    scores = traitlets.List(SCORES, read_only=True).tag(sync=True)

    def __init__(
        self,
        parts: Sequence[Mapping] = START,
        T: int = 5,
        S: int = 7,
        lengths: Sequence[int] = (7, 4),
        text: int = 0,
        **traits,
    ):
        given = {"T": T, "S": S, "lengths": list(lengths), "text": text}
        super().__init__(parts=list(parts), **given, **traits)

    @traitlets.validate("parts")
    def _parts_fit(self, proposal) -> list[dict]:
        given = proposal["value"]
        if not 1 <= len(given) <= PARTS:
            raise ValueError(f"{len(given)} parts given; there may be 1 to {PARTS}")
        return [check_part(part) for part in given]

    @traitlets.validate("T", "S", "text")
    def _in_range(self, proposal) -> int:
        name = proposal["trait"].name
        low, high = (0, 1) if name == "text" else (1, MOST)
        return read_integer(proposal["value"], low, high, name)

    @traitlets.validate("lengths")
    def _lengths_fit(self, proposal) -> list[int]:
        given = proposal["value"]
        if len(given) != 2:
            raise ValueError(f"there are 2 sequences, not {len(given)} lengths")
        return [read_integer(x, 0, MOST, "a length") for x in given]

    def mask(self) -> Bool[Tensor, "B 1 T S"]:
        """Return the mask for both sequences."""
        mask = self._one(self.parts[0])
        for part in self.parts[1:]:
            other = self._one(part)
            mask = mask & other if part["join"] == "and" else mask | other
        return mask.expand(2, 1, self.T, self.S)

    def _one(self, part: dict) -> Bool[Tensor, "..."]:
        """Return the mask of one part."""
        T, S, size = self.T, self.S, part["size"]
        if part["kind"] == "padding":
            lengths = torch.tensor(self.lengths).clamp(max=S)
            mask = masks.padding(lengths, S)
        elif part["kind"] == "document":
            ids = (torch.arange(S) >= size).long()[None]
            mask = masks.document(ids)[..., max(S - T, 0) :, :]
            before = max(T - S, 0)  # these queries come before the first document
            mask = torch.nn.functional.pad(mask, (0, 0, before, 0))
        elif part["kind"] == "causal":
            mask = masks.causal(T, S)
        elif part["kind"] == "dilated":
            mask = masks.dilated(T, S, size, part["step"])
        else:
            mask = getattr(masks, part["kind"])(T, S, size)
        return ~mask if part["negated"] else mask

    def weights(self) -> Float[Tensor, "B 1 T S"]:
        """Return what the fixed scores become under the mask."""
        scores = torch.tensor(self.scores)[: self.T, : self.S]
        mask = self.mask()
        return masked_softmax(scores.expand(mask.shape), mask)

    def fallback(self) -> str:
        """Return the weights as a table; a dot where a key is masked out."""
        mask = self.mask()[self.text, 0].tolist()
        rows = ""
        for t, row in enumerate(self.weights()[self.text, 0].tolist()):
            cells = "".join(
                f"<td>{f'{x:.2f}' if seen else '·'}</td>"
                for x, seen in zip(row, mask[t], strict=True)
            )
            end = "" if any(mask[t]) else "<td>empty row: zeros</td>"
            rows += f"<tr><th>query {t}</th>{cells}{end}</tr>"
        top = "".join(f"<th>key {s}</th>" for s in range(self.S))
        first, *others = (
            f"{'not ' if p['negated'] else ''}{p['kind']}" for p in self.parts
        )
        joined = "".join(
            f" {part['join']} {other}"
            for part, other in zip(self.parts[1:], others, strict=True)
        )
        return (
            f"<figure><figcaption>Weights under the mask {first}{joined}, "
            f"with {self.T} queries and {self.S} keys, in sequence "
            f"{self.text + 1} of 2 (lengths "
            f"{self.lengths[0]} and {self.lengths[1]}); a dot: masked out"
            f"</figcaption><table><thead><tr><th></th>{top}</tr></thead>"
            f"<tbody>{rows}</tbody></table></figure>"
        )
