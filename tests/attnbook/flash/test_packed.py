"""Packed sequences, held to one call of the reference for each."""

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.packed import flash_attention_packed
from flash_cases import compute_reference
from precision import draw, run_with_gradients

# Sequences of 5, 0, 9 and 3 queries, and of 7, 4, 2 and 0 keys.
QUERIES, KEYS = torch.tensor([0, 5, 5, 14, 17]), torch.tensor([0, 7, 11, 13, 13])


def compute_packed(query, key, value, options):
    outputs = []
    for i in range(len(QUERIES) - 1):
        rows = slice(QUERIES[i], QUERIES[i + 1])
        keys = slice(KEYS[i], KEYS[i + 1])
        given = (x.transpose(0, 1)[None] for x in (query[rows], key[keys], value[keys]))
        outputs.append(compute_reference(*given, options)[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("given", [{}, {"causal": True}, {"window": 2, "softcap": 1.5}])
def test_each_sequence_attends_to_its_own_keys_with_gradients(given):
    *inputs, upstream = draw((17, 4, 3), (13, 2, 3), (13, 2, 5), (17, 4, 5))
    found = run_with_gradients(
        lambda *x: flash_attention_packed(*x, QUERIES, KEYS, **given), inputs, upstream
    )
    expected = run_with_gradients(
        lambda *x: compute_packed(*x, Options(**given)), inputs, upstream
    )
    torch.testing.assert_close(found, expected)


def test_the_keys_have_the_offsets_of_the_queries_unless_given():
    inputs = draw(*[(17, 2, 3)] * 3)
    found = flash_attention_packed(*inputs, QUERIES, causal=True)
    same = flash_attention_packed(*inputs, QUERIES, QUERIES, causal=True)
    assert torch.equal(found, same)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_offsets": QUERIES.flip(0)}, r"from 0 to 17, .* \[17, 14, 5, 5, 0\]"),
        ({"key_offsets": torch.tensor([0, 9, 4, 13])}, r"ascend .* \[0, 9, 4, 13\]"),
        ({"key_offsets": torch.tensor([0, 12])}, r"0 to 13, .* are \[0, 12\]"),
        ({"key_offsets": torch.tensor([0, 13])}, "of 4 sequences, but keys of 1"),
        ({"query_offsets": QUERIES.double()}, "whole numbers .* torch.float64"),
        ({"query": torch.ones(1, 17, 2, 3)}, r"3 axes .* has 4: \(1, 17, 2, 3\)"),
        ({"value": torch.ones(12, 2, 3)}, "13 keys but 12 values"),
        ({"key_lengths": torch.ones(4)}, r"no padding, .* shape \(4,\)"),
    ],
)
def test_packings_that_do_not_fit_are_refused(change, message):
    query, key = torch.ones(17, 2, 3), torch.ones(13, 2, 3)
    given = {"query": query, "key": key, "value": key}
    given |= {"query_offsets": QUERIES, "key_offsets": KEYS}
    with pytest.raises(ValueError, match=message):
        flash_attention_packed(**given | change)
