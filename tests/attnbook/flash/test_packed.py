"""Packed sequences, held to one call of the reference for each."""

import pytest
import torch

from attnbook.flash.packed import (
    flash_attention_packed,
    flash_attention_packed_with_lse,
)
from flash_cases import (
    KEY_OFFSETS,
    PACKED,
    QUERY_OFFSETS,
    compute_packed_truth,
    draw_packed,
)
from precision import run_with_gradients


def join_lse(*inputs, **options):
    output, lse = flash_attention_packed_with_lse(
        *inputs, QUERY_OFFSETS, KEY_OFFSETS, **options
    )
    return torch.cat([output, lse[..., None]], dim=-1).nan_to_num(neginf=-9.0)


def run(title, call=join_lse):
    *inputs, upstream = draw_packed(torch.float64)
    upstream = torch.cat([upstream, upstream[..., :1]], dim=-1)
    options = vars(PACKED[title])
    return run_with_gradients(lambda *x: call(*x, **options), inputs, upstream)


@pytest.mark.parametrize("title", PACKED)
def test_each_sequence_attends_to_its_own_keys_with_gradients(title):
    torch.testing.assert_close(run(title), compute_packed_truth(title, torch.float64))


@pytest.mark.compiled
def test_torch_compile_without_a_graph_break_gives_the_same():
    torch._dynamo.reset()
    call = torch.compile(join_lse, fullgraph=True, backend="aot_eager")
    title = [*PACKED][-1]
    torch.testing.assert_close(
        run(title, call), compute_packed_truth(title, torch.float64)
    )


def test_the_keys_have_the_offsets_of_the_queries_unless_given():
    query, *_ = draw_packed(torch.float64)
    found, expected = (
        flash_attention_packed(query, query, query, *offsets, causal=True)
        for offsets in ([QUERY_OFFSETS], [QUERY_OFFSETS, QUERY_OFFSETS])
    )
    assert torch.equal(found, expected)


OFFSETS = torch.tensor([0, 5, 5, 14, 17])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_offsets": OFFSETS.flip(0)}, r"from 0 to 17, .* \[17, 14, 5, 5, 0\]"),
        (
            {"key_offsets": torch.tensor([0, 9, 4, 13, 13])},
            r"key_offsets must ascend .* \[0, 9, 4, 13, 13\]",
        ),
        ({"key_offsets": torch.tensor([0, 13])}, "of 4 sequences, but keys of 1"),
        ({"query_offsets": OFFSETS.double()}, "int32 or int64 .* torch.float64"),
        ({"query_offsets": [0, 17]}, r"int32 or int64 .* but are \[0, 17\]"),
        ({"query_offsets": OFFSETS.to(torch.uint8)}, "int32 or int64 .* torch.uint8"),
        ({"key_offsets": torch.tensor([0])}, r"at least 2 .* of shape \(1,\)"),
        ({"key_offsets": OFFSETS.to("meta")}, "on cpu, but are .* on meta"),
        ({"query": torch.ones(1, 17, 2, 3)}, r"3 axes .* has 4: \(1, 17, 2, 3\)"),
        ({"value": torch.ones(12, 2, 3)}, "2 heads of 13 but values 2 of 12"),
        ({"key_lengths": torch.ones(4)}, r"no padding, .* shape \(4,\)"),
    ],
)
def test_packings_that_do_not_fit_are_refused(change, message):
    query, key = torch.ones(17, 2, 3), torch.ones(13, 2, 3)
    given = {"query": query, "key": key, "value": key, "query_offsets": OFFSETS}
    given["key_offsets"] = torch.tensor([0, 7, 11, 13, 13])
    with pytest.raises(ValueError, match=message):
        flash_attention_packed(**given | change)
