"""Decoding on a real GPU: every case, widths, graphs; `make gpu` runs it.

Every call is strict, so that PyTorch cannot stand in for a kernel.
"""

from functools import partial

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import decoding
from decoding_cases import (
    CASES,
    compute_truth,
    draw_inputs,
    scatter_into_pages,
    spoil,
)
from gpu_waits import assert_no_wait
from precision import assert_close_to

attend_split_kv = partial(decoding.attend_split_kv, strict=True)
attend_paged = partial(decoding.attend_paged, strict=True)
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("error")]
kinds = pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"]
)


def require(kind, width=64):
    """Skip what the kernels do not take before compute capability 8.0."""
    if torch.cuda.get_device_capability() < (8, 0) and (
        kind != torch.float16 or width > 64
    ):
        pytest.skip(
            "before compute capability 8.0 the kernels take float16 and rows "
            f"up to 64 wide, not {kind} and {width}"
        )


@pytest.mark.parametrize("title", CASES)
def test_every_case_equals_the_reference(title):
    kind = torch.float16
    case, truth = CASES[title], compute_truth(title, kind)
    query, key, value = draw_inputs(title, kind)
    more = {"scale": case.scale, "parts": case.parts}
    lengths = case.known_lengths.cuda()
    cached = (spoil(x, case.known_lengths).cuda() for x in (key, value))
    found = attend_split_kv(query.cuda(), *cached, lengths, **more)
    assert_close_to(found.cpu(), truth, "from a cache")
    pages = (x.cuda() for x in scatter_into_pages(title, key, value))
    found = attend_paged(query.cuda(), *pages, lengths, **more)
    assert_close_to(found.cpu(), truth, "from pages")


def draw_pages(kind, D, each=4, B=3, columns=257, page=16):
    """Return query, two pools, block table and lengths, on the GPU."""
    rng = torch.Generator().manual_seed(0)
    query, *pools = (
        torch.randn(*shape, generator=rng).to("cuda", kind)
        for shape in (
            (B, 2 * each, 1, D),
            *[(B * columns + 5, 2, page, D)] * 2,
        )
    )
    table = torch.randperm(B * columns + 5, generator=rng)[: B * columns]
    lengths = torch.tensor([columns * page, 1, columns * page // 2 + 3])
    return query, *pools, table.view(B, columns).cuda(), lengths.cuda()


@kinds
@pytest.mark.parametrize(
    ("D", "each"), [(64, 1), (64, 40), (80, 4), (128, 4), (128, 40), (256, 4)]
)
def test_long_sequences_of_every_width_equal_the_reference(D, each, kind):
    require(kind, D)
    query, *pools, table, lengths = draw_pages(kind, D, each)
    found = attend_paged(query, *pools, table, lengths)
    for b, n in enumerate(lengths.tolist()):
        key, value = (x[table[b]].transpose(0, 1).flatten(1, 2)[:, :n] for x in pools)
        given = query[b], *(x.repeat_interleave(each, 0) for x in (key, value))
        truth = attend(*(x.double() for x in given))
        assert_close_to(found[b], truth, f"sequence {b}")


def test_a_cuda_graph_replays_on_new_lengths_and_pages():
    static = draw_pages(torch.float16, 64)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        attend_paged(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = attend_paged(*static)
    static[3].copy_(static[3].flip(0).flip(1))
    static[4].copy_(static[4].flip(0))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(output, attend_paged(*static))


def test_nothing_waits_for_the_gpu():
    given = draw_pages(torch.float16, 64)
    assert_no_wait(lambda: attend_paged(*given))


def test_page_numbers_and_lengths_on_the_gpu_are_bounded():
    query, *pools, table, lengths = draw_pages(torch.float16, 64)
    pages, most = len(pools[0]), table.shape[1] * pools[0].shape[2]
    table[0, 0], table[0, 1] = -5, pages + 7
    lengths[0], lengths[1] = most + 9, -1
    found = attend_paged(query, *pools, table, lengths)
    table[0, 0], table[0, 1] = 0, pages - 1
    lengths[0], lengths[1] = most, 0
    assert torch.equal(found, attend_paged(query, *pools, table, lengths))


def test_programs_that_run_at_once_give_the_same_bits_again():
    given = draw_pages(torch.float16, 64)
    runs = [attend_paged(*given) for _ in range(3)]
    assert all(torch.equal(runs[0], again) for again in runs[1:])
