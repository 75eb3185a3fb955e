"""Every cache against the model without one, and what each does with its rows."""

from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from attnbook.attention.multi_head import grouped_query
from attnbook.attention.scaled_dot_product import attend
from attnbook.decoding.caches import (
    CacheSizes,
    KVCache,
    LatentCache,
    PagedCache,
    PagedSequence,
    PagePool,
    QuantizedCache,
    WindowCache,
    dequantize,
    pack,
    quantize,
    unpack,
)
from attnbook.decoding.decoder import CachedDecoder, mark_visible
from attnbook.decoding.latent import (
    LatentDecoder,
    LatentSizes,
    attend_absorbed,
    attend_naive,
)
from attnbook.flash.decoding import attend_paged
from attnbook.models.modern_decoder import (
    DecoderConfig,
    ModernDecoder,
    ModernLanguageModel,
    RotaryAttention,
)
from attnbook.profiling.allocations import measure_peak_bytes
from perturbed import perturb
from precision import assert_equals_reference, draw

V, C, H, BLOCKS, W, SINKS, T = 23, 24, 6, 2, 4, 2, 13
LATENT = LatentSizes(C, heads=3, latent=8, content=6, rotary=4, value=5)


MODELS = {
    "MHA": lambda: ModernDecoder(DecoderConfig(V, C, H, H, 30, BLOCKS)),
    "GQA": lambda: ModernDecoder(DecoderConfig(V, C, H, 2, 30, BLOCKS, base=50.0)),
    "MQA with QK-norm": lambda: ModernLanguageModel(V, C, H, 1, 30, BLOCKS),
    "MLA": lambda: LatentDecoder(V, LATENT, 30, BLOCKS),
}
WINDOWS = {"all": {}, "window": {"window": W}, "sinks": {"window": W, "sinks": SINKS}}
CACHES = {
    "KVCache": lambda sizes, B: KVCache(sizes, B, T),
    "WindowCache": lambda sizes, B: WindowCache(sizes, B, W, SINKS),
    "PagedCache": lambda sizes, B: PagedCache(spoil(PagePool(sizes, 4 * B, 4)), B),
}
# How 13 symbols arrive: at once, one by one, in chunks longer than the window.
PIECES = [13], [5, *[1] * 8], [6, 1, 5, 1]


def build(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return perturb(MODELS[name]()).double().eval()


def spoil(pool):
    """Return the pool with NaN everywhere, as if other sequences had left it."""
    for x in (pool.key, pool.value):
        x.fill_(torch.nan)
    return pool


def draw_ids(*shape):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(1))


def run_without(model, ids, window=None, sinks=0):
    """Return the logits of one sequence (T,), computed at once."""
    at = torch.arange(len(ids))[None]
    mask = mark_visible(at, at, window, sinks)
    with torch.no_grad():
        return model(ids[None], mask)[0]


each_case = pytest.mark.parametrize(
    ("name", "cache", "window"),
    [
        (name, cache, window)
        for name, cache, window in product(MODELS, CACHES, WINDOWS)
        if (cache, window) != ("WindowCache", "all")
    ],
)


@each_case
def test_logits_with_a_cache_are_those_without(name, cache, window):
    model, ids = build(name), draw_ids(2, T)
    decoder = CachedDecoder(model, **WINDOWS[window])
    expected = [run_without(model, row, **WINDOWS[window]) for row in ids]
    for pieces in PIECES:
        store = CACHES[cache](CacheSizes.of(model), 2)
        made = [decoder(piece, store) for piece in ids.split(pieces, dim=1)]
        torch.testing.assert_close(torch.cat(made, dim=1), torch.stack(expected))


# Passes of three sequences: left padding, right padding, one that pauses.
PASSES = [
    ["..xxx", "xxx..", "xxxxx"],
    ["x", "x", "."],
    ["xxx", ".x.", "..x"],
    ["x", "x", "x"],
]


@each_case
def test_a_ragged_batch_gives_each_sequence_its_own_logits(name, cache, window):
    model = build(name)
    store = CACHES[cache](CacheSizes.of(model), 3)
    decoder = CachedDecoder(model, **WINDOWS[window])
    read, found = [[], [], []], [[], [], []]
    for i, rows in enumerate(PASSES):
        mask = torch.tensor([[x == "x" for x in row] for row in rows])
        ids = draw_ids(3, mask.shape[1] + i)[:, i:]
        logits = decoder(ids, store, mask)
        for b in range(3):
            read[b].append(ids[b, mask[b]])
            found[b].append(logits[b, mask[b]])
    assert store.lengths.tolist() == [8, 6, 7]
    for b in range(3):
        expected = run_without(model, torch.cat(read[b]), **WINDOWS[window])
        torch.testing.assert_close(torch.cat(found[b]), expected)


@pytest.mark.parametrize("cache", ["KVCache", "PagedCache"])
def test_a_sequence_that_was_cut_goes_on_as_if_it_had_not_been_longer(cache):
    model, ids = build("GQA"), draw_ids(2, T)
    store = CACHES[cache](CacheSizes.of(model), 2)
    decoder = CachedDecoder(model)
    decoder(torch.full((2, 9), 3), store)
    store.rewind(torch.tensor([0, 2]))
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    found = decoder(ids[:, :5], store, mask)
    expected = run_without(model, ids[0, :5])
    torch.testing.assert_close(found[0], expected)
    both = torch.cat([torch.tensor([3, 3]), ids[1, :3]])
    torch.testing.assert_close(found[1, :3], run_without(model, both)[2:])
    assert store.lengths.tolist() == [5, 5]


def test_rows_that_were_cut_leave_no_nan_to_a_shorter_sequence():
    model = build("GQA")
    store = KVCache(CacheSizes.of(model), 2, T)
    decoder = CachedDecoder(model)
    decoder(draw_ids(2, 6), store)
    for x in store.tensors:
        x[:, 1, :, 4:6] = torch.nan
    store.rewind(torch.tensor([6, 4]))
    assert decoder(draw_ids(2, 1), store).isfinite().all()


def test_a_cache_takes_the_bytes_that_were_counted_and_copies_none():
    model = ModernDecoder(DecoderConfig(V, 96, 6, 3, 30, 2)).eval()
    sizes = CacheSizes.of(model)
    assert sizes.bytes_per_token == 2 * 3 * (16 + 16) * 4
    counted = 2 * 2000 * sizes.bytes_per_token
    store = KVCache(sizes, 2, 2000)
    assert counted <= store.count_bytes() <= 1.05 * counted
    decoder = CachedDecoder(model)
    decoder(draw_ids(2, 1500), store)
    peak = measure_peak_bytes(lambda: decoder(draw_ids(2, 1), store))
    assert peak < store.count_bytes() / 4
    window = WindowCache(sizes, 2, 100, 4)
    assert window.count_bytes() == 2 * 104 * sizes.bytes_per_token
    latent = CacheSizes.of(build("MLA"))
    assert latent.bytes_per_token == BLOCKS * (8 + 4) * 8
    assert LatentCache(latent, 1, 10).count_bytes() == 10 * latent.bytes_per_token
    wide = CacheSizes(1, 1, 64, 64)
    quantized = QuantizedCache(wide, 1, 4096, bits=4, group=32, residual=32)
    # 4 bits, and 2 numbers of 32 bits for 32 codes; 64 positions are exact.
    counted = 4096 * wide.bytes_per_token * 6 / 32
    assert quantized.count_bytes() == counted + 64 * wide.bytes_per_token


def test_both_forms_of_latent_attention_are_scaled_dot_product_attention():
    B, heads, T, S, N, R, Z, E = 2, 3, 4, 7, 6, 2, 5, 8
    shapes = (B, heads, T, N), (B, heads, T, R), (B, 1, S, Z), (B, 1, S, R)
    inputs = draw(*shapes, (heads, N, Z), (heads, E, Z))
    mask = torch.ones(T, S).tril(2).bool()

    def reference(query, turned, latent, rotary_key, W_key, W_value):
        rotary_key = rotary_key.expand(-1, heads, -1, -1)
        key = torch.cat([latent @ W_key.mT, rotary_key], dim=-1)
        query = torch.cat([query, turned], dim=-1)
        return attend(query, key, latent @ W_value.mT, mask)

    [upstream] = draw((B, heads, T, E), seed=1)
    for form in attend_naive, attend_absorbed:
        assert_equals_reference(
            lambda *x, form=form: form(*x, mask), reference, inputs, upstream
        )


def test_the_naive_form_is_cheaper_for_prompts_and_the_absorbed_one_for_steps():
    """DeepSeek-V3's sizes; the counts are those of PyTorch."""
    sizes = LatentSizes(7168, 128, 512, 128, 64, 128)
    for T, S, cheaper in (4096, 4096, "naive"), (1, 4096, "absorbed"):
        counted = sizes.count_products(T, S)
        assert min(counted, key=counted.get) == cheaper
    query, turned = torch.empty(1, 2, 3, 6), torch.empty(1, 2, 3, 4)
    cache = torch.empty(1, 1, 7, 5), torch.empty(1, 1, 7, 4)
    weights = torch.empty(2, 6, 5), torch.empty(2, 8, 5)
    counted = LatentSizes(20, 2, 5, 6, 4, 8).count_products(3, 7)
    for name, form in ("naive", attend_naive), ("absorbed", attend_absorbed):
        with FlopCounterMode(display=False) as counter:
            form(query, turned, *cache, *weights)
        assert counter.get_total_flops() == 2 * counted[name]


def test_no_cache_makes_its_tensors_on_the_default_device():
    for name, cache in product(MODELS, CACHES):
        model, mask = build(name), torch.tensor([[False, True], [True, True]])
        ids = draw_ids(2, 2)
        with torch.device("meta"):
            store = CACHES[cache](CacheSizes.of(model), 2)
            logits = CachedDecoder(model, W, SINKS)(ids, store, mask)
            store.rewind(0)
        assert logits.device.type == "cpu"


def test_sequences_share_pages_until_one_of_them_writes():
    model, ids = build("GQA"), draw_ids(1, T)[0]
    pool = spoil(PagePool(CacheSizes.of(model), 4, 4))
    first, last = PagedCache(pool, 1), PagedCache(pool, 1)
    last.reserve(4)
    decoder = CachedDecoder(model)
    decoder(ids[None, :6], first)
    other = pool.share(first.sequences[0], 6)
    assert len(pool.free) == 1 and other.pages == first.sequences[0].pages
    both = PagedCache(pool, [first.sequences[0], other])
    free, pool.free = pool.free, []
    with pytest.raises(ValueError, match="1 more pages, but the pool has 0 free"):
        both.reserve(1)  # for the copy
    pool.free = free
    found = decoder(torch.stack([ids[6:8], ids[8:10]]), both)
    assert not pool.free  # the second page was copied, the first was not
    assert other.pages[0] == first.sequences[0].pages[0]
    for b, more in enumerate((ids[6:8], ids[8:10])):
        expected = run_without(model, torch.cat([ids[:6], more]))[6:]
        torch.testing.assert_close(found[b], expected)
    assert both.count_bytes() == 3 * 4 * pool.sizes.bytes_per_token
    both.rewind(0)
    last.rewind(0)
    assert sorted(pool.free) == [0, 1, 2, 3] and not any(pool.references)


def test_a_prefix_is_found_by_all_of_its_symbols():
    model, ids = build("GQA"), draw_ids(1, T)[0]
    pool = spoil(PagePool(CacheSizes.of(model), 8, 4))
    decoder, first = CachedDecoder(model), PagedCache(pool, 1)
    decoder(ids[None, :12], first)
    pool.publish(first.sequences[0], ids[:12].tolist())
    # The second page's symbols after another first page are another prefix.
    elsewhere = [*ids[4:8].tolist(), *ids[4:8].tolist(), 0]
    assert pool.find_prefix(elsewhere).length == 0
    found = pool.find_prefix([*ids[:9].tolist(), 0, 0, 0, 0])
    assert found.pages == first.sequences[0].pages[:2] and found.length == 8
    cache = PagedCache(pool, [found])
    logits = decoder(ids[None, 8:10], cache)
    torch.testing.assert_close(logits[0], run_without(model, ids[:10])[8:])
    cache.rewind(0)
    again = pool.find_prefix(ids[:12].tolist())
    assert again.length == 8  # of 12: the last symbol is left to compute
    PagedCache(pool, [again]).rewind(0)
    # A published page that is cut and written again is found no more.
    first.rewind(7)
    decoder(torch.tensor([[0]]), first)
    assert pool.find_prefix(ids.tolist()).length == 4


def test_pages_are_read_alike_by_the_split_kv_kernel():
    model = build("GQA")
    cache = CACHES["PagedCache"](CacheSizes.of(model), 2)
    mask = torch.arange(7) < torch.tensor([[7], [3]])
    positions = cache.reserve(7, mask)
    key, value = (torch.randn(2, 2, 7, 4, dtype=torch.double) for _ in range(2))
    rows = cache.update(1, key, value)
    query = torch.randn(2, H, 1, 4, dtype=torch.double)
    pages = (x[1] for x in cache.tensors)
    found = attend_paged(query, *pages, cache.block_table(), cache.lengths)
    visible = mark_visible(positions.amax(1, keepdim=True), cache.key_positions)
    torch.testing.assert_close(found, grouped_query(query, *rows, visible))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_what_is_quantized_is_off_by_half_a_step_at_most(bits):
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 2.5  # a row without a range
    codes, scales = quantize(x, bits)
    span = x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)
    error = (dequantize(codes, scales) - x).abs()
    assert (error <= span / (2**bits - 1) / 2 + 1e-6).all()
    assert error[1:].max() > span[1:].min() / 2**bits / 4  # it is quantized at all
    packed = pack(codes, bits)
    assert packed.nbytes == x.numel() * bits / 8
    assert torch.equal(unpack(packed, bits), codes)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_a_quantized_cache_keeps_new_positions_exact_and_old_ones_nearly(bits):
    group, residual, steps = 4, 3, [6, 1, 1, 5, 1, 1, 1]
    sizes = CacheSizes(1, 2, 6, 8, torch.double)
    cache = QuantizedCache(sizes, 2, 16, bits, group, residual)
    rng = torch.Generator().manual_seed(0)
    key = torch.randn(2, 2, 16, 6, generator=rng, dtype=torch.double)
    key[..., 2] *= 20  # an outlying channel
    value = torch.randn(2, 2, 16, 8, generator=rng, dtype=torch.double)
    start = 0
    for n in steps:
        cache.reserve(n)
        past = cache.past
        new = slice(start, start + n)
        start += n
        keys, values = cache.update(0, key[:, :, new], value[:, :, new])
        assert past <= max(0, start - n - residual) and past % group == 0
        for found, x, axis in (keys, key, 2), (values, value, 3):
            x = x[:, :, :start]
            assert torch.equal(found[:, :, past:], x[:, :, past:])
            rows = x[:, :, :past].unflatten(axis, (-1, group))
            span = rows.amax(axis + 1) - rows.amin(axis + 1)
            bound = span.repeat_interleave(group, axis) / (2**bits - 1) / 2
            error = (found - x)[:, :, :past].abs()
            assert (error <= bound + 1e-12).all() and (not past or error.any())
    assert cache.coded == 12


def test_fewer_bits_are_further_from_the_exact_logits():
    model, ids, errors = build("GQA"), draw_ids(2, T), []
    exact = run_without(model, ids[0])
    for bits in 8, 4, 2:
        cache = QuantizedCache(CacheSizes.of(model), 2, T, bits, 4, residual=4)
        pieces = ids.split([6, 1, 1, 1, 4], dim=1)
        found = torch.cat([CachedDecoder(model)(x, cache)[0] for x in pieces])
        torch.testing.assert_close(found[:8], exact[:8])  # nothing is quantized yet
        errors.append((found[9:] - exact[9:]).abs().max())
    assert 0 < errors[0] < errors[1] < errors[2]


SMALL = CacheSizes(1, 1, 4, 4, torch.double)
IMPOSSIBLE = [
    (lambda: KVCache(SMALL, 0, 4), "at least 1 sequence, not 0"),
    (lambda: KVCache(SMALL, 1, 0), "at least 1 position, not 0"),
    (lambda: WindowCache(SMALL, 1, 0), "not 0 and 0"),
    (lambda: QuantizedCache(SMALL, 2, 8, 3, 4), "not 3 bits and 4 of 4"),
    (lambda: QuantizedCache(SMALL, 2, 8, 8, 3), "not 8 bits and 3 of 4"),
    (lambda: fill(KVCache(SMALL, 2, 8), 3).rewind(4), "3 symbols cannot be cut to 4"),
    (lambda: fill(WindowCache(SMALL, 2, W), 6).rewind(5), "6 symbols .* cut to 5"),
    (
        lambda: fill(QuantizedCache(SMALL, 2, 8, 8, 4, 0), 6).rewind(3),
        r"4 positions .* cut to \[3, 3\]",
    ),
    (
        lambda: QuantizedCache(SMALL, 2, 8, 8, 4).reserve(2, torch.eye(2).bool()),
        r"would have \[1, 1\] symbols after \[0, 0\]",
    ),
    (lambda: PagePool(SMALL, 2).share(PagedSequence([1], 3), 4), "3 .* share 4"),
    (lambda: CachedDecoder(build("GQA"), 0), "not 0 and 0"),
    (lambda: CachedDecoder(build_selective()), "Selective has its own decode"),
]


def fill(cache, count):
    cache.reserve(count)
    return cache


def build_selective():
    class Selective(RotaryAttention):
        def decode(self, x, cache=None, mask=None):
            raise AssertionError

    return ModernDecoder(DecoderConfig(V, C, H, 2, 30, 1), Selective)


@pytest.mark.refusal
@pytest.mark.parametrize(("call", "message"), IMPOSSIBLE)
def test_what_is_impossible_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


UNFIT = [
    ("KVCache", None, (2, 12), None, "sequence 0 would have 14 .* 13 positions"),
    ("KVCache", None, (1, 3), None, "1 rows .* 2 sequences"),
    ("KVCache", None, (2, 3), [[1, 1], [1, 1]], r"\(2, 3\), .* mask \(2, 2\)"),
    ("KVCache", None, (2, 3), [[1, 1, 1], [1, 0, 1]], "sequence 1 .* 2 runs"),
    ("PagedCache", None, (2, 21), None, "10 more pages, but .* 6 free ones of 8"),
    ("WindowCache", None, (2, 3), None, "all keys and 0 sinks, but .* newest 4 and 2"),
    ("WindowCache", W + 1, (2, 3), None, "5 keys and 0 sinks, but .* newest 4 and 2"),
]


@pytest.mark.refusal
@pytest.mark.parametrize(("cache", "window", "ids", "mask", "message"), UNFIT)
def test_a_pass_that_does_not_fit_is_refused_and_changes_nothing(
    cache, window, ids, mask, message
):
    model = build("GQA")
    store = CACHES[cache](CacheSizes.of(model), 2)
    if cache != "WindowCache":
        CachedDecoder(model)(draw_ids(2, 2), store)
    before = [x.clone() for x in store.tensors]
    lengths = store.lengths.tolist()
    mask = None if mask is None else torch.tensor(mask).bool()
    with pytest.raises(ValueError, match=message):
        CachedDecoder(model, window)(draw_ids(*ids), store, mask)
    assert store.lengths.tolist() == lengths
    for x, y in zip(store.tensors, before, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
    if cache == "PagedCache":
        assert len(store.pool.free) == 6
