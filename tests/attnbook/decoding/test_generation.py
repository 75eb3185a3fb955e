"""Search, sampling, and generation from ragged batches and continuous ones."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from attnbook.data.vocabulary import END, START
from attnbook.decoding.caches import (
    CacheSizes,
    KVCache,
    PagedCache,
    PagePool,
)
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.generation import (
    Sampling,
    beam_search,
    decode_greedily,
    generate,
    greedy_search,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    scale_by_temperature,
)
from attnbook.decoding.scheduler import Request, serve
from attnbook.models.modern_decoder import DecoderConfig
from perturbed import build_varied_decoder
from small_models import LENGTHS, V, make_model, make_sources


@pytest.fixture(params=[False, True], ids=["fixed", "attention"])
def model(request):
    made = make_model(attention=request.param)
    with torch.no_grad():  # far from uniform, so that beams differ
        for parameter in made.parameters():
            parameter.mul_(4)
    return made


@torch.no_grad()
def probability(model, source, ids, ended=True):
    message = [*ids, END] if ended else list(ids)
    previous = torch.tensor([[START, *message[:-1]]])
    logits = model(source[None], torch.tensor([len(source)]), previous).logits[0]
    return -float(F.cross_entropy(logits, torch.tensor(message), reduction="sum"))


def test_greedy_search_returns_the_score_of_its_symbols(model):
    for row, found in enumerate(greedy_search(model, make_sources(), LENGTHS, limit=6)):
        source = make_sources()[row, : LENGTHS[row]]
        ended = len(found.ids) < 6
        score = probability(model, source, found.ids, ended)
        assert found.score == pytest.approx(score, abs=1e-4)
        assert END not in found.ids
        if found.weights is not None:
            rows = len(found.ids) + ended
            assert found.weights.shape == (rows, make_sources().shape[1])


def test_beam_search_of_width_one_equals_greedy_search(model):
    for row, found in enumerate(greedy_search(model, make_sources(), LENGTHS, limit=6)):
        (only,) = beam_search(model, make_sources()[row, : LENGTHS[row]], 1, limit=6)
        assert only.ids == found.ids
        assert only.score == pytest.approx(found.score, abs=1e-4)


def test_a_wide_beam_finds_the_most_probable_sequence(model):
    source, limit = make_sources()[0], 3
    symbols = [i for i in range(V) if i != END]
    best = max(
        (probability(model, source, ids), ids)
        for n in range(limit)
        for ids in itertools.product(symbols, repeat=n)
    )
    found = beam_search(model, source, width=V**limit, limit=limit)
    ended = [f for f in found if len(f.ids) < limit]
    assert ended[0].ids == best[1]
    assert ended[0].score == pytest.approx(best[0], abs=1e-4)


def test_length_power_normalizes_scores_by_length(model):
    for power in (0.0, 1.0):
        found = beam_search(model, make_sources()[0], 5, limit=6, length_power=power)
        fitness = [f.score / (len(f.ids) + 1) ** power for f in found]
        assert fitness == sorted(fitness, reverse=True)


@pytest.mark.refusal
def test_beam_width_below_one_is_refused(model):
    with pytest.raises(ValueError, match="width is 0 and limit is 64"):
        beam_search(model, make_sources()[0], width=0)
    with pytest.raises(ValueError, match="limit is 0"):
        greedy_search(model, make_sources(), LENGTHS, limit=0)


INF = float("inf")
LOGITS = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()


def read_kept(logits):
    return (logits > -INF).nonzero().flatten().tolist()


def test_filters_keep_the_symbols_that_the_papers_say():
    assert read_kept(keep_top_k(LOGITS, 2)) == [0, 1]
    assert read_kept(keep_top_k(LOGITS, 3)) == [0, 1, 2]  # of two equal ones the first
    assert read_kept(keep_top_k(LOGITS, 9)) == [0, 1, 2, 3]
    for p, kept in (0.5, [0]), (0.51, [0, 1]), (0.8, [0, 1, 2]), (1, [0, 1, 2, 3]):
        assert read_kept(keep_top_p(LOGITS.double(), p)) == kept
    assert read_kept(keep_top_p(LOGITS.flip(0), 0.6)) == [2, 3]
    assert read_kept(keep_min_p(LOGITS, 0.4)) == [0, 1]
    assert read_kept(keep_min_p(LOGITS, 0)) == [0, 1, 2, 3]
    assert read_kept(keep_min_p(LOGITS, 1)) == [0]
    rows = torch.randn(3, 2, 50, generator=torch.Generator().manual_seed(0))
    for keep, number in (keep_top_k, 7), (keep_top_p, 0.7), (keep_min_p, 0.1):
        found = keep(rows, number)
        assert torch.equal(found[2, 1], keep(rows[2, 1], number))
        assert torch.equal(found[found > -INF], rows[found > -INF])
    many = torch.zeros(100_000)
    assert len(read_kept(keep_top_p(many, 1))) == len(many)


def test_sampling_applies_the_temperature_first():
    hot = Sampling(2.0, top_p=0.6).probabilities(LOGITS)
    flat = (LOGITS / 2).softmax(-1)
    assert read_kept(hot.log()) == [0, 1] == read_kept(keep_top_p(LOGITS / 2, 0.6))
    torch.testing.assert_close(hot[:2], flat[:2] / flat[:2].sum())
    assert Sampling(0).probabilities(LOGITS).tolist() == [1, 0, 0, 0]
    assert Sampling(0).draw(LOGITS[None]).tolist() == [0]
    rng = torch.Generator().manual_seed(0)
    drawn = Sampling(top_k=3, min_p=0.3).draw(LOGITS.expand(6000, 4), rng)
    share = drawn.bincount(minlength=4) / 6000
    torch.testing.assert_close(share, torch.tensor([2, 1, 0, 0]) / 3, atol=0.03, rtol=0)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scale_by_temperature(LOGITS, 0), "is 0 but must be above 0"),
        (lambda: keep_top_k(LOGITS, 0), "top-k is 0"),
        (lambda: keep_top_p(LOGITS, 0), "top-p is 0 but must be above 0"),
        (lambda: Sampling(top_p=1.1), r"top-p is 1\.1"),
        (lambda: keep_min_p(LOGITS, -0.1), r"min-p is -0\.1"),
        (lambda: Sampling(-1), "temperature is -1"),
        (lambda: Sampling(float("nan")), "temperature is nan"),
    ],
)
def test_numbers_outside_their_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


MODEL = build_varied_decoder(DecoderConfig(V, 24, 6, 2, 30, 2))
SIZES = CacheSizes.of(MODEL)
PROMPTS = [[4, 5, 6, 7, 8, 9], [7], [5, 4, 10], [4, 5, 6, 7]]


def pad(side):
    """Return the prompts in a batch, padded with a real symbol, and the mask."""
    ids, mask = torch.full((4, 6), 4), torch.zeros(4, 6, dtype=torch.bool)
    for b, row in enumerate(PROMPTS):
        start = 0 if side == "right" else 6 - len(row)
        if side == "both":
            start //= 2
        ids[b, start : start + len(row)] = torch.tensor(row)
        mask[b, start : start + len(row)] = True
    return ids, mask


def continue_alone(ids, count):
    return decode_greedily(MODEL, torch.tensor([ids]), count)[0, len(ids) :].tolist()


CACHES = {
    "KVCache": lambda: KVCache(SIZES, 4, 17),
    "PagedCache": lambda: PagedCache(PagePool(SIZES, 20, 4), 4),
}


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("cache", CACHES)
def test_a_ragged_batch_generates_what_its_prompts_do_alone(cache, side):
    decoder, (ids, mask) = CachedDecoder(MODEL), pad(side)
    alone = [continue_alone(row, 12) for row in PROMPTS]
    for chunk in None, 1, 4:
        made = CACHES[cache]()
        assert generate(decoder, ids, 12, made, mask=mask, chunk=chunk) == alone
        assert made.lengths.tolist() == [len(row) + 11 for row in PROMPTS]


def test_a_sequence_that_stops_leaves_the_others_as_they_are():
    decoder, (ids, mask) = CachedDecoder(MODEL), pad("left")
    alone = [continue_alone(row, 12) for row in PROMPTS]
    stop = alone[0][3]
    expected = [row[: row.index(stop)] if stop in row else row for row in alone]
    assert {len(row) for row in expected} != {12} and 12 in map(len, expected)
    cache = KVCache(SIZES, 4, 17)
    found = generate(decoder, ids, 12, cache, mask=mask, stop={stop})
    assert found == expected
    sizes = [len(p) + min(len(row), 11) for p, row in zip(PROMPTS, found, strict=True)]
    assert cache.lengths.tolist() == sizes
    # What follows continues each sequence after the symbols in the cache.
    cache.rewind(torch.tensor([len(p) for p in PROMPTS]))
    more = generate(decoder, torch.full((4, 1), 9), 3, cache)
    assert more == [continue_alone([*row, 9], 3) for row in PROMPTS]


def test_sampling_a_batch_draws_what_the_generator_says():
    decoder, (ids, mask) = CachedDecoder(MODEL), pad("left")
    rng = [torch.Generator().manual_seed(s) for s in (1, 1, 2)]
    given = {"mask": mask, "sampling": Sampling(3.0)}
    found = [
        generate(decoder, ids, 9, KVCache(SIZES, 4, 14), **given, rng=r) for r in rng
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": torch.ones(4, 0, dtype=torch.long)}, r"prompt 0 is empty \(0 of 0"),
        ({"mask": torch.eye(4, 6) > 2}, "prompt 0 is empty"),
        ({"mask": torch.ones(4, 6)}, "must be boolean.* but is torch.float32"),
        ({"mask": torch.ones(4, 5) > 0}, r"and \(4, 6\), but .* \(4, 5\)"),
        (
            {"mask": torch.tensor([1, 0, 1, 1, 1, 1]) > 0},
            r"and \(4, 6\), but .* \(6,\)",
        ),
        (
            {"mask": torch.tensor([1, 0, 1, 1, 1, 1]).expand(4, 6) > 0},
            "sequence 0 .* 2 runs of True",
        ),
        ({"count": 10}, "sequence 0 would have 15 symbols, but the cache has 14"),
        ({"count": -1}, "not -1"),
        ({"chunk": 0}, "at least 1 symbol, not 0"),
        ({"ids": torch.ones(3, 2, dtype=torch.long)}, "3 prompts.* 4 sequences"),
    ],
)
def test_prompts_that_cannot_be_generated_from_are_refused(change, message):
    cache = KVCache(SIZES, 4, 14)
    given = {"ids": pad("left")[0], "count": 9} | change
    with pytest.raises(ValueError, match=message):
        generate(CachedDecoder(MODEL), cache=cache, **given)
    assert not cache.lengths.any() and not any(x.any() for x in cache.tensors)


COUNTS, ARRIVALS = [9, 1, 5, 7, 3, 6], [0, 1, 1, 1, 2, 30]


@pytest.mark.parametrize(
    ("slots", "chunk", "pages"), [(1, 3, 6), (3, 2, 9), (6, 16, 40)]
)
def test_continuous_batching_serves_each_request_as_if_alone(slots, chunk, pages):
    prompts = [*PROMPTS, [4, 5, 6, 7, 9, 9], [4, 5, 6, 7, 8, 9, 5]]
    requests = [
        Request(*given) for given in zip(prompts, COUNTS, ARRIVALS, strict=True)
    ]
    pool = PagePool(SIZES, pages, 3)
    for x in (pool.key, pool.value):
        x.fill_(torch.nan)
    served = serve(CachedDecoder(MODEL), pool, requests, slots, chunk)
    for request, found in zip(requests, served, strict=True):
        assert found.ids == continue_alone([*request.ids], request.count)
        assert request.arrival <= found.first <= found.last
        assert found.last - found.first == request.count - 1  # no pause
    assert len(pool.free) == pages and not pool.published
    if slots == 1:  # one after another, although all wait
        assert served[2].first > served[1].last > served[0].last


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request([], 3), "request 1 has 0 symbols, asks for 3"),
        (Request([1], 0), "request 1 has 1 symbols, asks for 0"),
        (Request([4] * 9, 8), "asks for 8 and needs 4 pages.* 3 free"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(request_, message):
    pool = PagePool(SIZES, 3, 4)
    with pytest.raises(ValueError, match=message):
        serve(CachedDecoder(MODEL), pool, [Request([4], 2), request_])
    assert len(pool.free) == 3
