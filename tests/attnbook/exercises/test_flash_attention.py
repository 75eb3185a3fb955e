"""What the exercises of chapter 11 are made of: a room, a stream, a judge."""

import copy
import pickle

import numpy as np
import pytest
import torch

from attnbook.attention import online_softmax as library
from attnbook.attention import tiled
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import flash_attention as checks
from attnbook.exercises.exercise import Case
from attnbook.exercises.flash_attention import check_tiled
from attnbook.exercises.flash_attention.online_softmax import Stream
from attnbook.exercises.memory_limit import MemoryLimit
from attnbook.exercises.outcome import are_equal
from attnbook.exercises.runner import run


def test_the_solutions_equal_the_library():
    rng = torch.Generator().manual_seed(0)
    query, key, value, up = (
        torch.randn(2, n, width, generator=rng, dtype=torch.float64)
        for n, width in ((5, 7), (11, 7), (11, 3), (5, 3))
    )
    chunks = (query @ key.mT)[0].split(4, dim=-1)
    ours = checks.check_online_softmax.solution(iter(chunks))
    for a, b in zip(ours, library.online_softmax(chunks), strict=True):
        torch.testing.assert_close(a, b)
    output, lse = checks.check_tiled.solution(query, key, value, 3)
    torch.testing.assert_close(output, attend(query, key, value))
    theirs = tiled.attend_tiled(query, key, value, 3)
    torch.testing.assert_close((output, lse), theirs)
    given = query, key, value, output, lse, up, 3
    found = checks.check_tiled_backward.solution(*given)
    torch.testing.assert_close(found, tiled.attend_tiled_gradient(*given))
    part = checks.check_tiled.solution(query, key[:, :4], value[:, :4], 3)
    rest = checks.check_tiled.solution(query, key[:, 4:], value[:, 4:], 3)
    merged = checks.check_merge.solution(*part, *rest)
    torch.testing.assert_close(merged, (output, lse))
    torch.testing.assert_close(library.merge(*part, *rest), merged)


def test_the_memory_limit_counts_live_tensors_only():
    x = torch.zeros(100)
    with MemoryLimit(800):
        for _ in range(10):
            y = x + 1  # 400 bytes; the one before goes
        view = y[:50]
        assert view.numel() == 50 and x[3:] is not None
    message = r"1,200 bytes .* and 800 are"
    with pytest.raises(MemoryError, match=message), MemoryLimit(800):
        kept = [x + i for i in range(3)]
        assert kept


def test_the_memory_limit_counts_storage_and_not_shapes():
    with MemoryLimit(800):
        torch.zeros(1).expand(10**6)
        torch.zeros(100).view(10, 10).mT.split(5)
    with pytest.raises(MemoryError), MemoryLimit(800):
        torch.zeros(100, dtype=torch.float64) + 1 + torch.zeros(10)


def test_the_memory_limit_counts_arrays_and_lists_if_asked():
    with MemoryLimit(800):
        np.zeros(10**5)
    with MemoryLimit(800, count_arrays=True):
        np.zeros(100)
    for allocate in (np.zeros, lambda n: [float(i) for i in range(n)]):
        with (
            pytest.raises(MemoryError, match="bytes of arrays and lists"),
            MemoryLimit(800, count_arrays=True),
        ):
            allocate(10**5)


def test_the_runner_applies_the_memory_limit_of_a_case():
    big = torch.zeros(64)
    free, tight = (Case("", (big,), memory_limit=n) for n in (None, 300))
    assert run(lambda x: x + 1, free).error is None
    assert run(lambda x: x.sum(), tight).error is None
    assert run(lambda x: torch.cat([x, x]), tight).error.startswith("MemoryErr")


def test_a_stream_is_read_once_and_copied_from_its_start():
    chunks = torch.zeros(2, 3), torch.ones(2, 1)
    stream = Stream(chunks)
    other = copy.deepcopy(stream)
    sent = pickle.loads(pickle.dumps(stream))
    assert len(list(stream)) == 2
    assert list(stream) == []
    assert len(list(other)) == len(list(sent)) == 2
    assert stream == other == sent
    first = next(iter(Stream(chunks)))
    first += 1
    assert not chunks[0].any()
    assert stream != Stream(chunks[:1])
    assert stream != 3


def test_no_finite_number_counts_as_equal_to_infinity():
    infinite = torch.tensor([-torch.inf, 1.0])
    assert are_equal((infinite,), (infinite.clone(),))
    for other in (0.0, -3e38, torch.inf, torch.nan):
        assert not are_equal((torch.tensor([other, 1.0]),), (infinite,))


@pytest.mark.precision
def test_memory_decides_only_in_cases_with_a_limit():
    verdict = check_tiled(
        lambda q, k, v, block: (
            attend(q, k, v),
            (q @ k.mT * q.shape[-1] ** -0.5).logsumexp(-1),
        ),
        3,
    )
    assert verdict.mistake == "whole-matrix"
    assert "bytes of tensors are in memory at once" in repr(verdict)
