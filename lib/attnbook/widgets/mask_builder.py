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


def complete_part(part: Mapping) -> dict:
    """Return a part with all it may say, or say what is wrong with it."""
    made = {"kind": None, "join": "and", "negated": False, "size": 3, "step": 2} | part
    if made["kind"] not in KINDS or made["join"] not in ("and", "or"):
        raise ValueError(
            f"a part has a kind among {', '.join(KINDS)}, and joins by and / or; "
            f"this one has {made['kind']!r} and {made['join']!r}"
        )
    return made


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
        ValueError: if a part is none; traitlets.TraitError if a number is.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    parts = traitlets.List(minlen=1, maxlen=PARTS).tag(sync=True)
    T = traitlets.Int(5, min=1, max=MOST).tag(sync=True)
    S = traitlets.Int(7, min=1, max=MOST).tag(sync=True)
    lengths = traitlets.List([7, 4], minlen=2, maxlen=2).tag(sync=True)
    text = traitlets.Int(0, min=0, max=1).tag(sync=True)
    scores = traitlets.List(SCORES, read_only=True).tag(sync=True)

    def __init__(self, parts: Sequence[Mapping] = START, **traits):
        super().__init__(parts=list(parts), **traits)

    @traitlets.validate("parts")
    def _complete(self, proposal) -> list[dict]:
        return [complete_part(part) for part in proposal["value"]]

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
