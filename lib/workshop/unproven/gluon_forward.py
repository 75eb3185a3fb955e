"""A forward kernel for Hopper GPUs in Gluon that no GPU has run yet.

Nothing imports it. A test compiles it for compute capability 9.0 and reads the
code; whether its results are right, and how fast it is, has not been measured.

One warp loads tiles of keys and values with the Tensor Memory Accelerator; two
groups of four warps compute 64 queries each and take turns at the tensor cores
(ping-pong). In each turn, a group starts the product of its queries and the
next keys, then that of its last weights and values, and computes the softmax of
the former while the latter runs. There is no mask: T must be a multiple of 128
and S of the keys in a tile.

Source: Shah et al. (2024), sections 3.1 and 3.2 and algorithm 2,
    https://arxiv.org/abs/2407.08608
Axes: T queries, S keys, D width of query, key and value; one row of memory for
    each query of each head of each sequence
"""

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

GROUPS, ROWS = 2, 64
KEYS = {64: 128, 128: 128}
STAGES = 2


@gluon.jit
def load_tiles(
    query, key, value, queries, keys, values, barriers, row, column, tiles,
    STAGES: gl.constexpr, BLOCK_S: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """Load the queries once, then keys and values into free places."""
    at_query, full_keys, full_values, free_keys, free_values, _ = barriers
    size: gl.constexpr = query.block_type.nbytes
    for group in gl.static_range(2):
        mbarrier.expect(at_query.index(group), size)
        tma.async_copy_global_to_shared(
            query, [row + group * ROWS, 0], at_query.index(group),
            queries.index(group),
        )  # fmt: skip
    for j in range(tiles):
        place, turn = j % STAGES, j // STAGES
        # The first use of a place waits for nothing: the phase before phase 0.
        mbarrier.wait(free_keys.index(place), (turn & 1) ^ 1)
        mbarrier.expect(full_keys.index(place), key.block_type.nbytes)
        tma.async_copy_global_to_shared(
            key, [column + j * BLOCK_S, 0], full_keys.index(place),
            keys.index(place),
        )  # fmt: skip
        mbarrier.wait(free_values.index(place), (turn & 1) ^ 1)
        mbarrier.expect(full_values.index(place), value.block_type.nbytes)
        tma.async_copy_global_to_shared(
            value, [column + j * BLOCK_S, 0], full_values.index(place),
            values.index(place),
        )  # fmt: skip


@gluon.jit
def update(scores, maximum, total, scale):
    """Update the online softmax with one tile of products."""
    highest = gl.maximum(maximum, gl.max(scores, 1) * scale)
    factor = gl.exp2(maximum - highest)
    exponentials = gl.exp2(scores * scale - gl.expand_dims(highest, 1))
    total = total * factor + gl.sum(exponentials, 1)
    return highest, total, factor, exponentials


@gluon.jit
def compute_rows(
    queries, keys, values, barriers, output, lse, row, tiles, scale,
    GROUP: gl.constexpr, STAGES: gl.constexpr, ROWS: gl.constexpr,
    BLOCK_S: gl.constexpr, D: gl.constexpr,
):  # fmt: skip
    """Compute the output and the logsumexp of 64 queries."""
    at_query, full_keys, full_values, free_keys, free_values, turns = barriers
    dtype: gl.constexpr = values.dtype
    scores_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_S, 16]
    )
    output_layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16]
    )
    left: gl.constexpr = gl.DotOperandLayout(0, output_layout, 2)
    along: gl.constexpr = gl.SliceLayout(1, scores_layout)
    beside: gl.constexpr = gl.SliceLayout(1, output_layout)
    zeros = gl.zeros([ROWS, BLOCK_S], gl.float32, scores_layout)
    maximum = gl.full([ROWS], float("-inf"), gl.float32, along)
    total = gl.zeros([ROWS], gl.float32, along)
    result = gl.zeros([ROWS, D], gl.float32, output_layout)
    own = queries.index(GROUP)
    mbarrier.wait(at_query.index(GROUP), 0)
    mbarrier.wait(full_keys.index(0), 0)
    # This group's turn: the other one has started its products.
    mbarrier.wait(turns.index(GROUP), 0)
    products = warpgroup_mma(
        own, keys.index(0).permute((1, 0)), zeros, use_acc=False, is_async=True
    )
    mbarrier.arrive(turns.index(1 - GROUP))
    scores = warpgroup_mma_wait(0, deps=[products])
    mbarrier.arrive(free_keys.index(0))
    maximum, total, factor, exponentials = update(scores, maximum, total, scale)
    weights = gl.convert_layout(exponentials.to(dtype), left)
    for j in range(1, tiles):
        place, turn = j % STAGES, j // STAGES
        before, then = (j - 1) % STAGES, (j - 1) // STAGES
        mbarrier.wait(full_keys.index(place), turn & 1)
        mbarrier.wait(full_values.index(before), then & 1)
        mbarrier.wait(turns.index(GROUP), j & 1)
        products = warpgroup_mma(
            own, keys.index(place).permute((1, 0)), zeros, use_acc=False,
            is_async=True,
        )  # fmt: skip
        running = warpgroup_mma(weights, values.index(before), result, is_async=True)
        mbarrier.arrive(turns.index(1 - GROUP))
        scores = warpgroup_mma_wait(1, deps=[products])
        mbarrier.arrive(free_keys.index(place))
        maximum, total, factor, exponentials = update(scores, maximum, total, scale)
        result = warpgroup_mma_wait(0, deps=[running])
        mbarrier.arrive(free_values.index(before))
        rescale = gl.convert_layout(factor, beside)
        result = result * gl.expand_dims(rescale, 1)
        weights = gl.convert_layout(exponentials.to(dtype), left)
    last, then = (tiles - 1) % STAGES, (tiles - 1) // STAGES
    mbarrier.wait(full_values.index(last), then & 1)
    running = warpgroup_mma(weights, values.index(last), result, is_async=True)
    result = warpgroup_mma_wait(0, deps=[running])
    divisor = gl.expand_dims(gl.convert_layout(total, beside), 1)
    result = result / divisor
    rows = row + GROUP * ROWS + gl.arange(0, ROWS, layout=beside)
    lanes = gl.arange(0, D, layout=gl.SliceLayout(0, output_layout))
    at = gl.expand_dims(rows.to(gl.int64), 1) * D + gl.expand_dims(lanes, 0)
    gl.store(output + at, result.to(dtype))
    at_sums = row + GROUP * ROWS + gl.arange(0, ROWS, layout=along)
    gl.store(lse + at_sums, maximum + gl.log2(total))


@gluon.jit
def forward(
    query, key, value, output, lse, T, S, scale,
    STAGES: gl.constexpr, ROWS: gl.constexpr, BLOCK_S: gl.constexpr,
    D: gl.constexpr,
):  # fmt: skip
    """Compute the output of 128 queries of one head."""
    blocks = T // (2 * ROWS)
    bh = gl.program_id(0) // blocks
    row = bh * T + gl.program_id(0) % blocks * 2 * ROWS
    column, tiles = bh * S, S // BLOCK_S
    dtype: gl.constexpr = query.dtype
    queries = gl.allocate_shared_memory(dtype, [2, ROWS, D], query.layout)
    keys = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_S, D], key.layout)
    values = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_S, D], value.layout)
    one: gl.constexpr = mbarrier.MBarrierLayout()
    at_query = gl.allocate_shared_memory(gl.int64, [2, 1], one)
    full_keys = gl.allocate_shared_memory(gl.int64, [STAGES, 1], one)
    full_values = gl.allocate_shared_memory(gl.int64, [STAGES, 1], one)
    free_keys = gl.allocate_shared_memory(gl.int64, [STAGES, 1], one)
    free_values = gl.allocate_shared_memory(gl.int64, [STAGES, 1], one)
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], one)
    for i in gl.static_range(2):
        mbarrier.init(at_query.index(i), count=1)
        mbarrier.init(turns.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full_keys.index(i), count=1)
        mbarrier.init(full_values.index(i), count=1)
        mbarrier.init(free_keys.index(i), count=2)
        mbarrier.init(free_values.index(i), count=2)
    fence_async_shared()
    mbarrier.arrive(turns.index(0))  # the first group begins
    barriers = (
        at_query, full_keys, full_values, free_keys, free_values, turns
    )  # fmt: skip
    gl.warp_specialize(
        [
            (
                compute_rows,
                (
                    queries, keys, values, barriers, output, lse, row, tiles,
                    scale, 0, STAGES, ROWS, BLOCK_S, D,
                ),
            ),
            (
                compute_rows,
                (
                    queries, keys, values, barriers, output, lse, row, tiles,
                    scale, 1, STAGES, ROWS, BLOCK_S, D,
                ),
            ),
            (
                load_tiles,
                (
                    query, key, value, queries, keys, values, barriers, row,
                    column, tiles, STAGES, BLOCK_S, ROWS,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output, and the logsumexp to base 2; (B, H, T, D) each way.

    Raises:
        ValueError: if the kernel does not compute such inputs.
    """
    (B, H, T, D), S = query.shape, key.shape[2]
    if key.shape != value.shape or key.shape != (B, H, S, D) or D not in KEYS:
        raise ValueError(
            f"the kernel takes heads of width 64 or 128 and as many heads of "
            f"keys, not {tuple(query.shape)} and {tuple(key.shape)}"
        )
    if T % (GROUPS * ROWS) or S % KEYS[D]:
        raise ValueError(
            f"the kernel takes multiples of {GROUPS * ROWS} queries and of "
            f"{KEYS[D]} keys, not T = {T} and S = {S}"
        )
    kind = gl.float16 if query.dtype == torch.float16 else gl.bfloat16
    output = torch.empty_like(query)
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    described = []
    for x, rows in ((query, ROWS), (key, KEYS[D]), (value, KEYS[D])):
        layout = gl.NVMMASharedLayout.get_default_for([rows, D], kind)
        flat = x.reshape(-1, D)
        described.append(TensorDescriptor.from_tensor(flat, [rows, D], layout))
    scale = D**-0.5 * 1.4426950408889634
    forward[(B * H * T // (GROUPS * ROWS),)](
        *described, output, lse, T, S, scale, STAGES, ROWS, KEYS[D], D,
        num_warps=4,
    )  # fmt: skip
    return output, lse
