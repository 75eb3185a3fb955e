"""Decoding from a cache and from its pages: right, refused, and fallen back."""

import math
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import FallbackWarning, decoding, sizes
from attnbook.flash.decoding import attend_paged, attend_split_kv
from attnbook.flash.sizes import find_gpu_limit
from decoding_cases import (
    CASES,
    compute_truth,
    draw_inputs,
    scatter_into_pages,
    spoil,
)
from flash_cases import BAD_LENGTHS, LENGTHS_BEYOND_7
from precision import assert_close_to, each_dtype


def decode_from_cache(title, dtype, **change):
    case = replace(CASES[title], **change)
    query, key, value = draw_inputs(title, dtype)
    key, value = (spoil(x, case.known_lengths) for x in (key, value))
    return attend_split_kv(
        query, key, value, case.known_lengths,
        scale=case.scale, parts=case.parts,
    )  # fmt: skip


def decode_from_pages(title, dtype, **change):
    case = replace(CASES[title], **change)
    query, key, value = draw_inputs(title, dtype)
    return attend_paged(
        query, *scatter_into_pages(title, key, value), case.known_lengths,
        scale=case.scale, parts=case.parts,
    )  # fmt: skip


WAYS = decode_from_cache, decode_from_pages
ways = pytest.mark.parametrize("run", WAYS, ids=["cache", "pages"])


@pytest.mark.parametrize("title", CASES)
def test_every_case_equals_the_reference(title):
    for run in WAYS:
        found = run(title, torch.float64)
        assert_close_to(found, compute_truth(title, torch.float64), run.__name__)


@each_dtype
@ways
def test_every_precision_equals_the_reference(run, dtype):
    for title in "several parts", "large logits", "an empty sequence, and one key":
        found = run(title, dtype)
        assert found.dtype == dtype
        assert_close_to(found, compute_truth(title, dtype), title)


@ways
def test_the_number_of_parts_changes_only_rounding(run):
    title = "page of five"
    for parts in (1, 2, 5, 13, 64, None):
        found = run(title, torch.float64, parts=parts)
        assert_close_to(found, compute_truth(title, torch.float64), f"{parts} parts")


def test_parts_are_of_equal_size_and_cover_all_keys():
    for keys in (1, 15, 16, 17, 999):
        for parts in (1, 2, 7, 64):
            size = decoding.choose_part_size(keys, parts, 16)
            assert size % 16 == 0
            assert size * parts >= keys
            assert math.ceil(keys / size) <= parts


def test_long_caches_are_split_by_default(monkeypatch):
    lengths = []
    part = decoding.attend_part

    def note(query, key, value, *more):
        lengths.append(key.shape[2])
        return part(query, key, value, *more)

    monkeypatch.setattr(decoding, "attend_part", note)
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 1, 8, generator=rng)
    key, value = (torch.randn(1, 2, 3000, 8, generator=rng) for _ in "kv")
    output = attend_split_kv(query, key, value)
    assert lengths == [1000] * 3
    wanted = attend(query, *(x.repeat_interleave(2, 1) for x in (key, value)))
    torch.testing.assert_close(output, wanted)


def test_sequences_may_share_pages():
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(2, 2, 1, 4, generator=rng).double()
    pools = [torch.randn(5, 1, 3, 4, generator=rng).double() for _ in "kv"]
    table, lengths = torch.tensor([[4, 0], [4, 2]]), torch.tensor([5, 6])
    output = attend_paged(query, *pools, table, lengths)
    for b in range(2):
        key, value = (x[table[b], 0].flatten(0, 1) for x in pools)
        n = lengths[b]
        torch.testing.assert_close(
            output[b, :, 0], attend(query[b, :, 0], key[:n], value[:n])
        )


@ways
def test_a_nan_that_is_attended_to_surfaces(run, monkeypatch):
    title = "several parts"
    query, key, value = draw_inputs(title, torch.float64)
    key[1, 0, 69, 2] = torch.nan
    monkeypatch.setitem(globals(), "draw_inputs", lambda *_: (query, key, value))
    found = run(title, torch.float64)
    assert found[1].isnan().all()
    assert found[0].isfinite().all()


@ways
def test_inputs_are_not_changed(run, monkeypatch):
    title = "lengths that end a page, and do not"
    inputs = draw_inputs(title, torch.float64)
    before = [x.clone() for x in inputs]
    monkeypatch.setitem(globals(), "draw_inputs", lambda *_: inputs)
    run(title, torch.float64)
    assert all(map(torch.equal, before, inputs))


def test_importing_it_imports_no_triton():
    code = "import attnbook.flash.decoding, sys; sys.exit('triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


Z = torch.zeros
CACHE = {"query": Z(2, 4, 1, 4), "key": Z(2, 2, 7, 4), "value": Z(2, 2, 7, 3)}
PAGED = {
    "query": Z(2, 4, 1, 4),
    "key_pages": Z(5, 2, 8, 4),
    "value_pages": Z(5, 2, 8, 3),
    "block_table": torch.tensor([[4, 0, -1], [3, 1, 2]]),
    "key_lengths": torch.tensor([16, 17]),
}
CALLS = {"attend_split_kv": CACHE, "attend_paged": PAGED}
# Both refuse these; they are tried on the cache alone.
BOTH_REFUSE = {
    "3 axes": ({"query": Z(2, 4, 4)}, "query must have 4 axes"),
    "several queries": (
        {"query": Z(2, 4, 3, 4)},
        "decoding takes 1 query a head, not 3: .* use flash_attention",
    ),
    "no query": ({"query": Z(2, 4, 0, 4)}, "takes 1 query a head, not 0"),
    "groups": ({"query": Z(2, 3, 1, 4)}, "3 heads do not divide into 2 groups"),
    "widths": ({"query": Z(2, 4, 1, 6)}, "6 wide but keys are 4"),
    "devices": (
        {"query": Z(2, 4, 1, 4, device="meta")},
        "query is on meta but key on cpu",
    ),
    "precisions": (
        {"query": Z(2, 4, 1, 4).half()},
        "query is torch.float16 but key torch.float32",
    ),
    "a scale that is none": ({"scale": math.inf}, "finite number .* not inf"),
    "no parts": ({"parts": 0}, "from 1 to 64, not 0"),
    "half a part": ({"parts": 1.5}, "from 1 to 64, not 1.5"),
    "too many parts": ({"parts": 65}, "from 1 to 64, not 65"),
    **BAD_LENGTHS,
    "lengths elsewhere": (
        {"key_lengths": Z(2, dtype=torch.int32, device="meta")},
        "but key_lengths on meta",
    ),
}
CACHE_REFUSES = BOTH_REFUSE | {
    "batches": (
        {"key": Z(3, 2, 7, 4)},
        "queries of 2 sequences, but keys of 3",
    ),
    "values": (
        {"value": Z(2, 2, 6, 3)},
        "keys have 2 heads of 7 but values 2 of 6",
    ),
    "no key": ({"key": Z(2, 2, 0, 4), "value": Z(2, 2, 0, 3)}, "S = 0 keys"),
    **LENGTHS_BEYOND_7,
}
PAGED_REFUSES = {
    "pages of values": (
        {"value_pages": Z(4, 2, 8, 3)},
        "5 pages of keys but 4 of values",
    ),
    "an empty pool": (
        {"key_pages": Z(0, 2, 8, 4), "value_pages": Z(0, 2, 8, 3)},
        "0 pages of keys but 0 of values; .* at least 1",
    ),
    "pages of other sizes": (
        {"value_pages": Z(5, 2, 6, 3)},
        "keys have 2 heads of 8 but values 2 of 6",
    ),
    "a page number beyond the pool": (
        {"block_table": torch.tensor([[4, 0, -1], [3, 1, 5]])},
        r"block_table\[1, 2\] is 5, but the pool has pages 0 to 4",
    ),
    "a negative page number": (
        {"block_table": torch.tensor([[4, -2, -1], [3, 1, 2]])},
        r"block_table\[0, 1\] is -2, but the pool has pages 0 to 4",
    ),
    "a length beyond the pages": (
        {"key_lengths": torch.tensor([16, 25])},
        "sequence 1 has 25 keys, but its 3 pages of 8 have from 0 to 24",
    ),
    "a negative length": (
        {"key_lengths": torch.tensor([-1, 16])},
        "sequence 0 has -1 keys",
    ),
    "a table of one row": (
        {"block_table": torch.tensor([[4, 0, 1]])},
        r"must be \(2, n\), .* but is \(1, 3\)",
    ),
    "a table without columns": (
        {"block_table": torch.zeros(2, 0, dtype=torch.int64)},
        r"a row of n >= 1 page numbers .* but is \(2, 0\)",
    ),
    "a table of one axis": (
        {"block_table": torch.tensor([4, 0])},
        r"must be \(2, n\), .* but is \(2,\)",
    ),
    "broken page numbers": (
        {"block_table": torch.zeros(2, 3)},
        "must have whole numbers, but has torch.float32",
    ),
    "a table elsewhere": (
        {"block_table": Z(2, 3, dtype=torch.int32, device="meta")},
        "query is on cpu but block_table on meta",
    ),
}


@pytest.mark.refusal
@pytest.mark.parametrize("name", CACHE_REFUSES)
def test_a_cache_that_does_not_fit_is_refused_with_both_values(name):
    change, message = CACHE_REFUSES[name]
    with pytest.raises(ValueError, match=message):
        attend_split_kv(**CACHE | change)


@pytest.mark.refusal
@pytest.mark.parametrize("name", PAGED_REFUSES)
def test_pages_that_do_not_fit_are_refused_with_both_values(name):
    change, message = PAGED_REFUSES[name]
    with pytest.raises(ValueError, match=message):
        attend_paged(**PAGED | change)


def test_the_inputs_of_the_refusals_are_accepted_unchanged():
    assert attend_split_kv(**CACHE).shape == (2, 4, 1, 3)
    assert attend_paged(**PAGED).shape == (2, 4, 1, 3)


calls = pytest.mark.parametrize("name", CALLS)


@calls
def test_no_number_is_read_on_another_device(name):
    """On the device "meta" no length and no page number can be read."""
    given = {k: x.to("meta") for k, x in CALLS[name].items()}
    assert getattr(decoding, name)(**given).shape == (2, 4, 1, 3)


@calls
def test_a_gradient_is_refused_not_forgotten(name):
    given = CALLS[name] | {"query": Z(2, 4, 1, 4, requires_grad=True)}
    output = getattr(decoding, name)(**given)
    with pytest.raises(NotImplementedError, match="use flash_attention"):
        output.sum().backward()


@pytest.mark.refusal
@calls
def test_tensors_on_the_cpu_give_no_warning_but_strict_raises(name):
    call = getattr(decoding, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(**CALLS[name])
    with pytest.raises(ValueError, match="NVIDIA GPU, not tensors on the CPU"):
        call(**CALLS[name], strict=True)


def cast(given, dtype):
    return {k: x.to(dtype) if x.is_floating_point() else x for k, x in given.items()}


@pytest.mark.refusal
def test_what_the_kernels_do_not_take_is_warned_of_once_and_strict_raises(
    monkeypatch,
):
    name, dtype, message = "attend_paged", torch.bfloat16, "not bfloat16"
    monkeypatch.setattr(sizes, "WARNED", set())
    monkeypatch.setattr(
        sizes,
        "find_device_limit",
        lambda device, dtype, width: find_gpu_limit((7, 5), dtype, width),
    )
    call, given = getattr(decoding, name), cast(CALLS[name], dtype)
    with pytest.warns(FallbackWarning, match=f"{name}: .*{message}"):
        call(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(**given)
    with pytest.raises(ValueError, match=f"strict=True excludes .*{message}"):
        call(**given, strict=True)


@pytest.mark.compiled
@calls
def test_the_operator_keeps_the_rules_of_pytorch(name):
    given = dict(CALLS[name])
    query, key, value = (given.pop(k) for k in [*given][:3])
    more = given.get("key_lengths"), given.get("block_table"), 0.5, 2
    torch.library.opcheck(decoding.decode, (query, key, value, *more))


@pytest.mark.compiled
@calls
def test_torch_compile_without_a_graph_break_gives_the_same(name):
    torch._dynamo.reset()
    call = getattr(decoding, name)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    rng = torch.Generator().manual_seed(0)
    given = {
        k: torch.randn(x.shape, generator=rng) if x.is_floating_point() else x
        for k, x in CALLS[name].items()
    }
    torch.testing.assert_close(compiled(**given), call(**given))
