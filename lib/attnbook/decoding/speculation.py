"""Speculative decoding: one pass of the model checks several proposed symbols.

A draft proposes symbols, the model computes the probabilities of all of them in one
pass, and the rejection rule keeps so many that each symbol is distributed as if the
model alone had drawn it.

Source: Leviathan, Kalman and Matias (2023), sections 2.3 and 3.1, equation 1 and
    appendix A.1, https://arxiv.org/abs/2211.17192; Chen et al. (2023), algorithm 2,
    https://arxiv.org/abs/2302.01318; proposals from the prompt: Saxena (2023),
    https://github.com/apoorvumang/prompt-lookup-decoding
Axes: n proposed symbols, T symbols of the prompt, V symbols
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.decoding.caches import Cache
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.generation import GREEDY, Sampling, prefill, require_prompts
from attnbook.models.devices import sample_columns

# Proposed symbols and the probabilities (n, V) from which they were drawn; None if
# they were not drawn, so that each had probability 1.
Proposal = tuple[list[int], Float[Tensor, "n V"] | None]


def expected_tokens(acceptance: float | int, proposed: int) -> float:
    """Return the mean number of symbols of a pass: (1 - a^(n + 1)) / (1 - a).

    Each of n proposed symbols is accepted with probability a, independently.
    """
    return sum(acceptance**i for i in range(proposed + 1))


def accept(
    proposal: Sequence[int],
    draft: Float[Tensor, "n V"] | None,
    target: Float[Tensor, "_ V"],
    rng: torch.Generator | None = None,
) -> list[int]:
    """Return the accepted symbols and one more, by the rejection rule.

    Symbol x is accepted with probability min(1, target(x) / draft(x)). After the first
    rejection, a symbol is drawn from max(0, target - draft), normalized; if all are
    accepted, from the target.

    Args:
        draft: the probabilities from which the proposal was drawn, or None.
        target: the model's probabilities, one row more.
    """
    device = "cpu" if rng is None else rng.device
    for i, symbol in enumerate(proposal):
        p, q = target[i, symbol], 1.0 if draft is None else draft[i, symbol]
        if torch.rand((), generator=rng, device=device).item() * q < p:
            continue
        rest = target[i].index_fill(0, torch.tensor(symbol, device=target.device), 0)
        if draft is not None:
            rest = (target[i] - draft[i]).clamp(min=0)
        # Equal but for rounding: then any symbol of the target is right.
        rest = rest if rest.any() else target[i]
        return [*proposal[:i], int(sample_columns(rest[None], rng))]
    return [*proposal, int(sample_columns(target[-1:], rng))]


class PromptLookup:
    """Proposes what followed the newest symbols when they last occurred.

    Args:
        match: how many of the newest symbols must agree; fewer if they are new.
        count: how many symbols are proposed at most.
    """

    symbols, cache = None, None  # fits every vocabulary

    def __init__(self, match: int = 3, count: int = 8):
        self.match, self.count = match, count

    def propose(
        self,
        ids: Sequence[int],
        most: int,
        sampling: Sampling = GREEDY,
        rng: torch.Generator | None = None,
    ) -> Proposal:
        """Return the symbols after the last earlier occurrence."""
        ids = list(ids)
        for n in range(min(self.match, len(ids) - 1), 0, -1):
            for start in range(len(ids) - n - 1, -1, -1):
                if ids[start : start + n] == ids[-n:]:
                    return ids[start + n :][: min(self.count, most)], None
        return [], None


class DraftModel:
    """Proposes symbols that a smaller decoder draws, with a cache of its own.

    `count` symbols are proposed at most.
    """

    def __init__(self, decoder: CachedDecoder, cache: Cache, count: int = 4):
        self.decoder, self.cache, self.count = decoder, cache, count
        self.symbols = decoder.symbols
        self.read: list[int] = []  # what the cache has

    def propose(
        self,
        ids: Sequence[int],
        most: int,
        sampling: Sampling = GREEDY,
        rng: torch.Generator | None = None,
    ) -> Proposal:
        """Return drawn symbols and their probabilities."""
        # The newest symbol is read in any case, for its logits.
        equal = [a == b for a, b in zip(self.read, ids[:-1], strict=False)]
        shared = [*equal, False].index(False)
        self.cache.rewind(shared)
        self.read, new = [*ids], ids[shared:]
        proposal: list[int] = []
        rows: list[Tensor] = []
        for _ in range(min(self.count, most)):
            device = self.decoder.table.device
            hidden = self.decoder.run(torch.tensor([new], device=device), self.cache)
            rows.append(sampling.probabilities(self.decoder.predict(hidden[:, -1])))
            new = [int(sample_columns(rows[-1], rng))]
            proposal += new
        self.read = [*self.read, *proposal][: int(self.cache.lengths[0])]
        return proposal, torch.cat(rows) if rows else None


class Speculation(NamedTuple):
    """What speculation returns.

    Attributes:
        ids: the new symbols, without a stop symbol.
        passes: of the model, without that of the prompt.
        proposed: how many symbols the draft proposed.
        accepted: how many of them were accepted.
    """

    ids: list[int]
    passes: int
    proposed: int
    accepted: int


@torch.no_grad()
def speculate(
    decoder: CachedDecoder,
    ids: Int[Tensor, "1 T"],
    count: int,
    cache: Cache,
    draft: PromptLookup | DraftModel,
    *,
    sampling: Sampling = GREEDY,
    stop: Collection[int] = (),
    rng: torch.Generator | None = None,
) -> Speculation:
    """Return up to `count` new symbols, distributed as those of `generate`.

    With greedy sampling they are the same, as far as rounding leaves the order of
    logits as it is. The cache is afterwards as `generate` leaves it.

    Raises:
        ValueError: as `generate`; for several sequences, a draft with another
            vocabulary or too small a cache, or a cache that cannot be cut.
    """
    if len(ids) != 1 or count < 1:
        raise ValueError(
            f"speculation is for 1 sequence and at least 1 symbol, not {len(ids)} and "
            f"{count}"
        )
    if draft.symbols not in (None, decoder.symbols):
        raise ValueError(
            f"the draft has {draft.symbols} symbols, but the model {decoder.symbols}"
        )
    require_prompts(ids, None, cache, count)
    for store in filter(None, (cache, draft.cache)):
        if store.window is not None:
            raise ValueError(
                f"speculation takes symbols back, but a cache has only the newest "
                f"{store.window}"
            )
        store.require_room(torch.tensor([ids.shape[1] + count - 1], device="cpu"))
    known, passes, proposed, accepted = ids[0].tolist(), 0, 0, 0
    prompt = len(known)
    new = sampling.draw(prefill(decoder, ids, cache), rng).tolist()
    while True:
        for symbol in new:
            if symbol in stop:
                cache.rewind(int(cache.lengths[0]) - len(new) + new.index(symbol) + 1)
                return Speculation(known[prompt:], passes, proposed, accepted)
            known.append(symbol)
        left = count - (len(known) - prompt)
        if not left:
            return Speculation(known[prompt:], passes, proposed, accepted)
        proposal, probabilities = draft.propose(known, left - 1, sampling, rng)
        start = int(cache.lengths[0])
        checked = torch.tensor([[known[-1], *proposal]], device=ids.device)
        logits = decoder.predict(decoder.run(checked, cache)[0])
        new = accept(proposal, probabilities, sampling.probabilities(logits), rng)
        cache.rewind(start + len(new))
        passes, proposed = passes + 1, proposed + len(proposal)
        accepted += len(new) - 1
