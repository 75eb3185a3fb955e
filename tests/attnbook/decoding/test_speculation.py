"""Speculation draws from the model's distribution, and refuses what cannot work."""

import pytest
import torch

from attnbook.decoding.caches import (
    CacheSizes,
    KVCache,
    PagedCache,
    PagePool,
    WindowCache,
)
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.generation import Sampling, decode_greedily, generate
from attnbook.decoding.speculation import (
    DraftModel,
    PromptLookup,
    accept,
    expected_tokens,
    speculate,
)
from attnbook.models.devices import sample_columns
from attnbook.models.modern_decoder import DecoderConfig
from perturbed import build_varied_decoder

TARGET = torch.tensor([[0.1, 0.4, 0.3, 0.2, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
DRAFT = torch.tensor([[0.3, 0.1, 0.1, 0.3, 0.2]])
RUNS = 4000


def build(blocks=2, symbols=11, seed=0):
    config = DecoderConfig(symbols, 24, 6, 2, 30, blocks)
    return CachedDecoder(build_varied_decoder(config, seed=seed))


def make_cache(decoder, capacity=40):
    return KVCache(CacheSizes.of(decoder.model), 1, capacity)


def chi_square(drawn, probabilities):
    """Return Pearson's statistic and its 99.9 % point (Wilson and Hilferty 1931)."""
    counts = torch.bincount(drawn.flatten(), minlength=probabilities.numel()).double()
    expected = probabilities.flatten().double() * counts.sum()
    possible = expected > 0
    assert not counts[~possible].any()
    value = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    k = 2 / (9 * (int(possible.sum()) - 1))
    return value, 2 / (9 * k) * (1 - k + 3.09 * k**0.5) ** 3


def accept_without_correction(proposal, draft, target, rng):
    """After a rejection, draw from the target instead of max(0, target - draft)."""
    p, q = target[0, proposal[0]], draft[0, proposal[0]]
    if torch.rand((), generator=rng) * q < p:
        return [*proposal]
    return [int(sample_columns(target[:1], rng))]


def draw_first(rule, draft=DRAFT):
    rng, found = torch.Generator().manual_seed(0), []
    for _ in range(RUNS):
        proposal = [3] if draft is None else sample_columns(draft, rng)[0].tolist()
        found.append(rule(proposal, draft, TARGET, rng)[0])
    return torch.tensor(found)


@pytest.mark.parametrize("draft", [DRAFT, None], ids=["drawn", "certain"])
def test_the_rejection_rule_draws_from_the_target(draft):
    value, limit = chi_square(draw_first(accept, draft), TARGET[0])
    assert value < limit


def test_the_chi_square_test_notices_a_wrong_rule():
    value, limit = chi_square(draw_first(accept_without_correction), TARGET[0])
    assert value > limit
    value, limit = chi_square(draw_first(lambda proposal, *_: proposal)[:200], DRAFT[0])
    assert value < limit  # without any rule, symbols are the draft's


def test_all_accepted_symbols_are_followed_by_one_of_the_target():
    sure = torch.eye(5)
    assert accept([1, 2], sure[1:3], sure[1:4]) == [1, 2, 3]
    assert accept([1, 2], None, sure[[1, 0, 3]]) == [1, 0]
    assert accept([], None, sure[4:]) == [4]


def test_sampled_pairs_are_distributed_as_without_speculation():
    """The second symbol depends on the first, and on whether the cache was cut."""
    decoder, other = build(), build(1, seed=5)
    ids, sampling = torch.tensor([[1, 4]]), Sampling(1.5, top_k=3)
    rows = decoder(ids, make_cache(decoder))[:, -1]
    first = sampling.probabilities(rows)[0]
    both = torch.zeros(11, 11, dtype=torch.double)
    for a in range(11):
        more = torch.cat([ids, torch.tensor([[a]])], dim=1)
        rows = decoder(more, make_cache(decoder))[:, -1]
        both[a] = first[a] * sampling.probabilities(rows)[0]
    rng, drawn = torch.Generator().manual_seed(0), []
    for _ in range(700):
        draft = DraftModel(other, make_cache(other), 3)
        found = speculate(
            decoder, ids, 3, make_cache(decoder), draft, sampling=sampling, rng=rng
        )
        drawn.append(found.ids[0] * 11 + found.ids[1])
    value, limit = chi_square(torch.tensor(drawn), both)
    assert value < limit


def make_drafts():
    model, other = build(), build(1, seed=5)
    return {
        "lookup": PromptLookup(3, 4),
        "draft": DraftModel(other, make_cache(other), 3),
        "itself": DraftModel(model, make_cache(model), 3),
    }


CACHES = {
    "KVCache": make_cache,
    "PagedCache": lambda d: PagedCache(PagePool(CacheSizes.of(d.model), 10, 4), 1),
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["lookup", "draft", "itself"])
def test_greedy_symbols_and_cache_are_those_without_speculation(name, cache):
    decoder = build()
    ids = torch.tensor([[1, 4, 2, 1, 4, 2, 1]])
    for count in 1, 2, 5, 17:
        draft = make_drafts()[name]
        stores = CACHES[cache](decoder), make_cache(decoder)
        found = speculate(decoder, ids, count, stores[0], draft)
        [expected] = generate(decoder, ids, count, stores[1])
        plain = decode_greedily(decoder.model, ids, count)[0, 7:].tolist()
        assert found.ids == expected == plain
        assert torch.equal(stores[0].lengths, stores[1].lengths)
        assert found.accepted <= found.proposed
        assert found.accepted + found.passes == count - 1
        if name == "itself":
            assert found.accepted == found.proposed
        # Both caches go on alike, also with the draft's own cache at another prompt.
        again = torch.tensor([[3, 3]])
        more = speculate(decoder, again, 4, stores[0], draft).ids
        assert [more] == generate(decoder, again, 4, stores[1])


def test_a_stop_symbol_ends_speculation_within_a_pass():
    decoder, ids = build(), torch.tensor([[1, 4, 2, 1]])
    [whole] = generate(decoder, ids, 12, make_cache(decoder))
    for stop in sorted(set(whole)):
        stores = make_cache(decoder), make_cache(decoder)
        draft = make_drafts()["itself"]
        found = speculate(decoder, ids, 12, stores[0], draft, stop=[stop])
        assert [found.ids] == generate(decoder, ids, 12, stores[1], stop=[stop])
        assert found.ids == whole[: whole.index(stop)]
        assert torch.equal(stores[0].lengths, stores[1].lengths)


def test_a_lookup_proposes_what_followed_the_last_time():
    lookup = PromptLookup(match=2, count=3)
    assert lookup.propose([7, 8, 1, 7, 8, 2, 3, 7, 8], 5) == ([2, 3, 7], None)
    assert lookup.propose([7, 8, 1, 2, 8], 1) == ([1], None)  # one symbol agrees
    assert lookup.propose([1, 2, 3], 5) == ([], None)
    assert lookup.propose([1, 1], 5) == ([1], None)


def test_the_expected_number_of_tokens():
    assert expected_tokens(0.0, 4) == 1
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.8, 3) == pytest.approx((1 - 0.8**4) / (1 - 0.8))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": torch.ones(1, 0, dtype=torch.long)}, "prompt 0 is empty"),
        ({"ids": torch.ones(2, 3, dtype=torch.long)}, "not 2 and 4"),
        ({"count": 0}, "not 1 and 0"),
        ({"count": 39}, "would have 41 symbols, but the cache has 40"),
        ({"draft": "vocabulary"}, "draft has 6 symbols, but the model 11"),
        ({"draft": "short"}, "would have 6 symbols, but the cache has 5"),
        ({"cache": "window"}, "only the newest 9"),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(change, message):
    decoder = build()
    other, small = build(symbols=6), build(1)
    cache = make_cache(decoder)
    if "cache" in change:
        cache = WindowCache(CacheSizes.of(decoder.model), 1, 9)
    drafts = {
        "vocabulary": DraftModel(other, make_cache(other)),
        "short": DraftModel(small, make_cache(small, 5)),
    }
    given = {"ids": torch.ones(1, 3, dtype=torch.long), "count": 4} | change
    given |= {"cache": cache, "draft": drafts.get(change.get("draft"), PromptLookup())}
    with pytest.raises(ValueError, match=message):
        speculate(decoder, **given)
    assert not cache.lengths.any() and not any(x.any() for x in cache.tensors)
