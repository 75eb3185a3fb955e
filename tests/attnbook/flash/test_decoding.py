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
from flash_cases import BAD_LENGTHS
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
# What `flash_attention` refuses in the same way is tried there.
CACHE_REFUSES = [
    ({"query": Z(2, 4, 3, 4)}, "1 query a head, not 3: .* use flash_attention"),
    ({"query": Z(2, 3, 1, 4)}, "3 heads do not divide into 2 groups"),
    ({"scale": math.inf}, "finite number .* not inf"),
    ({"parts": 1.5}, "from 1 to 64, not 1.5"),
    ({"parts": 65}, "from 1 to 64, not 65"),
    ({"key_lengths": Z(2).to(torch.int8)}, "int32 or int64 .* torch.int8"),
    *[BAD_LENGTHS["too few lengths"], BAD_LENGTHS["lengths beyond S"]],
]
PAGED_REFUSES = [
    ({"value_pages": Z(4, 2, 8, 3)}, "5 pages of keys but 4 of values"),
    ({"value_pages": Z(5, 2, 6, 3)}, "keys have 2 heads of 8 but values 2 of 6"),
    ({"block_table": Z(2, 3).to(torch.uint8)}, "int32 or int64, but is torch.uint8"),
    (
        {"block_table": torch.tensor([[4, 0, -1], [3, 1, 5]])},
        r"block_table\[1, 2\] is 5, but the pool has pages 0 to 4",
    ),
    (
        {"block_table": torch.tensor([[4, -2, -1], [3, 1, 2]])},
        r"block_table\[0, 1\] is -2, but the pool has pages 0 to 4",
    ),
    (
        {"key_lengths": torch.tensor([16, 25])},
        "sequence 1 has 25 keys, but its 3 pages of 8 have from 0 to 24",
    ),
    ({"block_table": torch.tensor([[4, 0, 1]])}, r"must be \(2, n\), .* is \(1, 3\)"),
    ({"block_table": Z(2, 3)}, "must be int32 or int64, but is torch.float32"),
    (
        {"block_table": [[4, 0], [3, 1]]},
        r"int32 or int64, but is \[\[4, 0\], \[3, 1\]\]",
    ),
    (
        {"block_table": Z(2, 3, dtype=torch.int32, device="meta")},
        "query is on cpu but block_table on meta",
    ),
]


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [("attend_split_kv", *row) for row in CACHE_REFUSES]
    + [("attend_paged", *row) for row in PAGED_REFUSES],
)
def test_what_does_not_fit_is_refused_with_both_values(name, change, message):
    with pytest.raises(ValueError, match=message):
        getattr(decoding, name)(**CALLS[name] | change)


calls = pytest.mark.parametrize("name", CALLS)


@calls
def test_no_number_is_read_on_another_device(name):
    """On the device "meta" no length and no page number can be read."""
    given = {k: x.to("meta") for k, x in CALLS[name].items()}
    assert getattr(decoding, name)(**given).shape == (2, 4, 1, 3)


def test_a_gradient_is_refused_not_forgotten():
    output = attend_split_kv(**CACHE | {"query": Z(2, 4, 1, 4, requires_grad=True)})
    with pytest.raises(NotImplementedError, match="use flash_attention"):
        output.sum().backward()


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
