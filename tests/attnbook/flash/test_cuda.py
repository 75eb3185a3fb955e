"""The Triton kernels on a real GPU: every case, width, and way of calling them.

`make gpu` runs these tests. They need torch, Triton, NumPy and pytest. Every
call is strict, so that tiles cannot stand in for a kernel.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

import decoding_cases
import flash_cases
from attnbook import flash
from attnbook.attention.scaled_dot_product import attend
from attnbook.flash import decoding, packed
from attnbook.flash.options import Options
from attnbook.flash.sizes import choose_tile_sizes
from attnbook.positions.biases import alibi_slopes
from attnbook.profiling.allocations import measure_peak_bytes
from gpu_waits import assert_no_wait
from precision import (
    BOUNDS,
    assert_all_close_to,
    assert_close_to,
    assert_equals_reference,
    measure_difference,
    run_with_gradients,
)

flash_attention = partial(flash.flash_attention, strict=True)
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


def put_on_gpu(options):
    """Return options as keyword arguments, their tensors on the GPU."""
    given = vars(options)
    return {k: x.cuda() if isinstance(x, torch.Tensor) else x for k, x in given.items()}


def draw(*shape, kind=torch.float16, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng).to("cuda", kind)


@pytest.mark.parametrize("title", flash_cases.CASES)
def test_every_case_equals_the_reference_forward_and_backward(title):
    kind = torch.float16
    inputs, upstream = flash_cases.draw_inputs(title, kind)
    options = put_on_gpu(flash_cases.CASES[title].options(kind))
    found = run_with_gradients(
        lambda *x: flash_attention(*x, **options),
        [x.cuda() for x in inputs],
        upstream.cuda(),
    )
    assert_all_close_to(
        [x.cpu() for x in found], flash_cases.compute_truth(title, kind)
    )


@kinds
@pytest.mark.parametrize(
    ("D", "causal"), [(64, False), (80, True), (128, True), (256, False)]
)
def test_several_tiles_of_every_width_equal_the_reference(D, causal, kind):
    require(kind, D)
    T = S = 389
    given = [draw(2, 3, n, D, kind=kind, seed=n % 7) for n in (T, S, S)]
    upstream = draw(2, 3, T, D, kind=kind, seed=9)
    mask = torch.ones(T, S, dtype=torch.bool, device="cuda")
    mask = mask.tril() if causal else None
    assert_equals_reference(
        lambda *x: flash_attention(*x, causal=causal),
        lambda *x: attend(*x, mask),
        given,
        upstream,
    )


def test_programs_that_run_at_once_give_the_same_bits_again():
    given = [draw(4, 8, 1025, 64, seed=i) for i in range(4)]
    runs = [
        run_with_gradients(
            lambda *x: flash_attention(*x, causal=True), given[:3], given[3]
        )
        for _ in range(3)
    ]
    for again in runs[1:]:
        assert all(map(torch.equal, runs[0], again))


def test_sequences_that_lie_2_to_the_31_numbers_apart():
    free, _ = torch.cuda.mem_get_info()
    if free < 6 * 2**30:
        pytest.skip(f"needs 6 GiB, and {free / 2**30:.1f} GiB are free")
    # A stride of 32 bits; the third sequence begins at twice the stride.
    near = draw(3, 1, 37, 64)
    far = torch.empty(2**31 + 37 * 64, dtype=near.dtype, device="cuda")
    apart = far.as_strided(near.shape, (2**30, 37 * 64, 64, 1))
    apart.copy_(near)
    assert torch.equal(
        flash_attention(apart, apart, apart), flash_attention(near, near, near)
    )


OPTIONS = {
    "full": {},
    "causal": {"causal": True},
    "window and lengths": {"window": 50, "key_lengths": [130, 7]},
    "alibi and soft-cap": {"alibi_slopes": True, "causal": True, "softcap": 20.0},
}
options = pytest.mark.parametrize("name", OPTIONS)


def make_call(name, function=flash_attention, device="cuda"):
    """Return a call with its options, their tensors on the device."""
    given = dict(OPTIONS[name])
    if "key_lengths" in given:
        given["key_lengths"] = torch.tensor(given["key_lengths"], device=device)
    if "alibi_slopes" in given:
        given["alibi_slopes"] = alibi_slopes(4).to(device)
    return lambda *x: function(*x, **given)


def draw_shared(seed=0, D=64):
    """Return query, key and value with shared heads, and the upstream."""
    heads = (4, 2, 2, 4)
    return [draw(2, h, 130, D, seed=seed + i) for i, h in enumerate(heads)]


@options
@pytest.mark.parametrize("D", [64, 256])
def test_sinks_and_the_logsumexp_equal_those_of_the_cpu(name, D):
    require(torch.float16, D)
    *given, upstream = draw_shared(D=D)

    def join(device, *inputs):
        *inputs, sinks = (x.to(device) for x in inputs)
        function = partial(flash.flash_attention_with_lse, strict=device == "cuda")
        output, lse = make_call(name, function, device)(*inputs)
        joined = [flash.apply_sinks(output, lse, sinks), lse[..., None].to(output)]
        return torch.cat(joined, dim=-1).cuda().clamp(min=-9)  # -inf without keys

    assert_equals_reference(
        partial(join, "cuda"),
        partial(join, "cpu"),
        [*given, draw(4)],
        torch.cat([upstream, upstream[..., :1]], dim=-1),
    )


@options
@pytest.mark.filterwarnings("default")
def test_torch_compile_without_a_graph_break_gives_the_same_numbers(name):
    *given, upstream = draw_shared()
    call = make_call(name)
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True)
    found = run_with_gradients(compiled, given, upstream)
    wanted = run_with_gradients(call, given, upstream)
    torch.testing.assert_close(found, wanted)


@options
def test_a_cuda_graph_replays_both_passes_on_new_inputs(name):
    call, static = make_call(name), [x.clone() for x in draw_shared()]
    leaves = [x.requires_grad_() for x in static[:3]]

    def both():
        output = call(*leaves)
        return [output, *torch.autograd.grad(output, leaves, static[3])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            both()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = both()
    fresh = draw_shared(seed=10)
    with torch.no_grad():
        for place, x in zip(static, fresh, strict=True):
            place.copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    wanted = run_with_gradients(call, fresh[:3], fresh[3])
    assert all(map(torch.equal, outputs, wanted))


@options
def test_nothing_waits_for_the_gpu(name):
    *given, upstream = draw_shared()
    call = make_call(name)
    assert_no_wait(lambda: run_with_gradients(call, given, upstream))


def test_no_score_matrix_is_allocated():
    B, H, N, D = 1, 4, 8192, 64
    given = [draw(B, H, N, D, seed=i) for i in range(4)]
    call = make_call("causal")
    run_with_gradients(call, given[:3], given[3])
    most = measure_peak_bytes(
        lambda: run_with_gradients(call, given[:3], given[3]), "cuda"
    )
    assert most < H * N * N * 2 / 8, f"{most / 2**20:.0f} MiB"


def test_descriptors_give_the_same_output():
    capability = torch.cuda.get_device_capability()
    if capability < (9, 0):
        pytest.skip(f"descriptors need compute capability 9.0, not {capability}")
    from attnbook.flash import launch

    given = [draw(2, h, 389, 64, seed=h) for h in (4, 2, 2)]
    tile = choose_tile_sizes("forward", capability, torch.float16, 64)
    plain, described = (
        launch.forward(*given, Options(causal=True), replace(tile, descriptors=chosen))
        for chosen in (False, True)
    )
    torch.testing.assert_close(described, plain)


# Packed sequences.


def join_packed_lse(*inputs, **options):
    """Return the output, and the logsumexp as one more column; -9 for -inf."""
    output, lse = packed.flash_attention_packed_with_lse(
        *inputs, strict=True, **options
    )
    joined = torch.cat([output.float(), lse[..., None]], dim=-1)
    return joined.nan_to_num(neginf=-9.0)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("title", flash_cases.PACKED)
def test_packed_sequences_equal_the_reference_and_nothing_waits(title):
    *inputs, upstream = (x.cuda() for x in flash_cases.draw_packed(torch.float16))
    upstream = torch.cat([upstream, upstream[..., :1]], dim=-1).float()
    offsets = flash_cases.QUERY_OFFSETS.cuda(), flash_cases.KEY_OFFSETS.cuda()
    options = put_on_gpu(flash_cases.PACKED[title])

    def both(call=join_packed_lse):
        return run_with_gradients(
            lambda *x: call(*x, *offsets, **options), inputs, upstream
        )

    assert_no_wait(both)
    truth = flash_cases.compute_packed_truth(title, torch.float16)
    torch._dynamo.reset()
    for found in both(), both(torch.compile(join_packed_lse, fullgraph=True)):
        for x, expected in zip(found, truth, strict=True):
            assert measure_difference(x.cpu(), expected) <= BOUNDS[torch.float16]


@pytest.mark.filterwarnings("default")
def test_packed_sequences_equal_those_of_pytorch():
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    require(torch.bfloat16)
    lengths = torch.tensor([0, 1, 700, 64, 389])
    offsets = lengths.cumsum(0).int().cuda()
    *inputs, upstream = (
        draw(int(lengths.sum()), 4, 64, kind=torch.bfloat16, seed=i) for i in range(4)
    )
    twice = offsets, offsets
    most = int(lengths.max())
    theirs, ours = (
        run_with_gradients(call, inputs, upstream)
        for call in (
            lambda *x: varlen.varlen_attn(*x, *twice, most, most, window_size=(-1, 0)),
            lambda *x: packed.flash_attention_packed(
                *x, *twice, causal=True, strict=True
            ),
        )
    )
    for x, expected in zip(ours, theirs, strict=True):
        assert measure_difference(x, expected.double()) <= BOUNDS[torch.bfloat16]


# Decoding.


@pytest.mark.parametrize("title", decoding_cases.CASES)
def test_every_case_of_decoding_equals_the_reference(title):
    kind = torch.float16
    case, truth = decoding_cases.CASES[title], decoding_cases.compute_truth(title, kind)
    query, key, value = decoding_cases.draw_inputs(title, kind)
    more = {"scale": case.scale, "parts": case.parts}
    lengths = case.known_lengths.cuda()
    cached = (decoding_cases.spoil(x, case.known_lengths).cuda() for x in (key, value))
    found = attend_split_kv(query.cuda(), *cached, lengths, **more)
    assert_close_to(found.cpu(), truth, "from a cache")
    pages = (x.cuda() for x in decoding_cases.scatter_into_pages(title, key, value))
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
@pytest.mark.parametrize(("D", "each"), [(64, 1), (80, 4), (128, 40), (256, 4)])
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


def test_in_decoding_nothing_waits_for_the_gpu():
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
