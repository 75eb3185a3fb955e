"""The cache stepper: tokens arrive, pages fill, and bytes count.

Source: pages and block tables: Kwon et al. (2023), section 4.1,
    https://arxiv.org/abs/2309.06180; latent attention: DeepSeek-AI (2024), section 2.1,
    https://arxiv.org/abs/2405.04434
"""

from html import escape
from pathlib import Path

import torch
import traitlets

from attnbook.decoding.caches import CacheSizes
from attnbook.widgets.base import BookWidget

HERE = Path(__file__)
TEXT = (
    "the cat sat on the mat because it was warm there and nobody else wanted to sit "
    "on the mat"
)
TOKENS = TEXT.split()
PROMPT = 6  # tokens that the first pass reads
MOST = len(TOKENS) - PROMPT + 1  # passes
POOL = 32  # positions of the pool
PAGES = 2, 4, 8
# Llama 3 8B's shape with 16-bit numbers, and DeepSeek-V3's latent in it.
KINDS = {
    "MHA": CacheSizes(32, 32, 128, 128, torch.float16),
    "GQA": CacheSizes(32, 8, 128, 128, torch.float16),
    "MLA": CacheSizes(32, 1, 512, 64, torch.float16),
    "GQA + window": CacheSizes(32, 8, 128, 128, torch.float16),
}
WINDOWED = "GQA + window"


class CacheStepper(BookWidget):
    """The cache of one sequence, stopped after any number of passes.

    Args:
        kind: one of `KINDS`.
        step: how many passes are done; the first reads the prompt.
        page: positions of a page, 2, 4 or 8.
        window: keys that a query can attend to if the kind has a window, 2 to 12.

    Raises:
        traitlets.TraitError: if a value is none of these.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    kind = traitlets.Enum([*KINDS], "GQA").tag(sync=True)
    step = traitlets.Int(4, min=0, max=MOST).tag(sync=True)
    page = traitlets.Enum(PAGES, 4).tag(sync=True)
    window = traitlets.Int(6, min=2, max=12).tag(sync=True)
    tokens = traitlets.List(TOKENS, read_only=True).tag(sync=True)
    prompt = traitlets.Int(PROMPT, read_only=True).tag(sync=True)
    sizes = traitlets.Dict(
        {name: x.bytes_per_token for name, x in KINDS.items()}, read_only=True
    ).tag(sync=True)

    def count_tokens(self) -> int:
        """Return how many tokens have been read."""
        return PROMPT + self.step - 1 if self.step else 0

    def list_order(self) -> list[int]:
        """Return the pages of the pool in the order in which they are taken.

        The last quarter of them belongs to other sequences.
        """
        count = POOL // self.page
        return [(3 * i + 1) % count for i in range(count)]

    def count_outside(self, kind: str) -> int:
        """Return how many tokens the newest query can no longer attend to."""
        return max(0, self.count_tokens() - self.window) if kind == WINDOWED else 0

    def list_table(self, kind: str | None = None) -> list[int]:
        """Return the block table; -1: a page that has left the window is free."""
        kind = kind or self.kind
        pages = -(-self.count_tokens() // self.page)
        freed = self.count_outside(kind) // self.page
        return [-1] * freed + self.list_order()[freed:pages]

    def count_bytes(self, kind: str) -> tuple[int, int]:
        """Return the bytes of the pages, and those that the newest query reads."""
        pages = sum(number >= 0 for number in self.list_table(kind))
        read = self.count_tokens() - self.count_outside(kind)
        each = self.sizes[kind]
        return pages * self.page * each, read * each

    def fallback(self) -> str:
        """Return the block table in words, and the bytes of all kinds as a table."""
        read = " ".join(TOKENS[: self.count_tokens()])
        rows = ""
        for name in KINDS:
            stored, used = self.count_bytes(name)
            rows += (
                f"<tr><th>{name}</th><td>{self.sizes[name]:,}</td>"
                f"<td>{stored:,}</td><td>{used:,}</td></tr>"
            )
        table = ", ".join("free" if n < 0 else str(n) for n in self.list_table())
        return (
            f"<figure><figcaption>After {self.step} passes, {self.count_tokens()} "
            f"tokens: “{escape(read)}”. {self.kind}, pages of {self.page} positions, "
            f"window {self.window}. Block table: {table or 'empty'}."
            "</figcaption><table><thead><tr><th></th><th>bytes a token</th>"
            "<th>bytes of the pages</th><th>bytes read by the newest query</th></tr>"
            f"</thead><tbody>{rows}</tbody></table></figure>"
        )
