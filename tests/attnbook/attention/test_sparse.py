import pytest
import torch
from torch.utils.checkpoint import checkpoint

from attnbook import masks
from attnbook.attention.blocked import attend_window
from attnbook.attention.scaled_dot_product import attend
from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import (
    LightningIndexer,
    attend_block_sparse,
    compute_indexer_loss,
    score_mean_keys,
    select_top_blocks,
    select_top_keys,
    sum_over_blocks,
)
from attnbook.masks import rules
from attnbook.masks.layouts import cover_rule
from attnbook.positions.rotary import rotate
from precision import assert_equals_reference, attend_with_sink, draw

# Block-sparse attention.

BLOCK = 3
WINDOW = rules.window(15, 15, 4)
PATTERNS = {
    "longformer": lambda b, h, q, k: (
        rules.two_sided_window(15, 15, 2)(b, h, q, k)
        | rules.global_tokens(15, 15, [0, 7])(b, h, q, k)
    ),
    "by head and sequence": lambda b, h, q, k: (k <= q) & (q - k <= h + b),
}


def draw_inputs(T=15):
    """Return query, key and value, and the upstream gradient."""
    return draw(*((2, 3, T, width) for width in (5, 5, 7, 7)))


def expand(layout):
    return layout.repeat_interleave(BLOCK, -1).repeat_interleave(BLOCK, -2)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("lead", [(), (3,), (1,), (2, 3), (2, 1)])
@pytest.mark.parametrize("name", [None, *PATTERNS, "no key"])
@pytest.mark.parametrize("sunk", [False, True])
def test_each_head_has_a_layout_of_its_own(name, lead, dtype, sunk, threads):
    *inputs, upstream = (x.to(dtype) for x in draw_inputs())
    rng = torch.Generator().manual_seed(0)
    layout = (torch.rand(*lead, 5, 5, generator=rng) < 0.4) | torch.eye(5).bool()
    mask, rule = expand(layout), None
    if name is not None:
        rule = PATTERNS.get(name, lambda b, h, q, k: k < q)
        mask = mask & masks.materialize_mask(rule, 15, 15, batch=2, heads=3)
    sinks = [torch.tensor([-1.0, 0.5, 2.0]).to(dtype)] if sunk else []

    assert_equals_reference(
        lambda *x: attend_block_sparse(*x[:3], layout, rule, *x[3:]),
        lambda *x: (attend_with_sink if sunk else attend)(*x[:3], mask, *x[3:]),
        [*inputs, *sinks],
        upstream,
    )


@pytest.mark.parametrize("sinks", [None, torch.ones(3)])
def test_a_checkpoint_can_hold_a_layout(sinks):
    inputs = [x.float().requires_grad_() for x in draw_inputs()[:3]]
    given = *inputs, torch.ones(5, 5).tril().bool(), None, sinks
    output = checkpoint(attend_block_sparse, *given, use_reentrant=False)
    found = torch.autograd.grad(output.sum(), inputs)
    expected = torch.autograd.grad(attend_block_sparse(*given).sum(), inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.compiled
def test_a_compiled_layout_keeps_its_threads(threads, recwarn):
    inputs = [x.float() for x in draw_inputs()[:3]]
    given = *inputs, torch.ones(5, 5).tril().bool()
    compiled = torch.compile(attend_block_sparse, backend="eager")
    torch.testing.assert_close(compiled(*given), attend_block_sparse(*given))
    # Traced, the cache of threads is ignored, and each call starts new ones.
    assert not any("lru_cache" in str(x.message) for x in recwarn)


def test_heads_of_a_group_share_keys_but_not_blocks():
    query, key, value, _ = draw_inputs()
    layout = torch.ones(3, 5, 5).tril().bool()
    layout[1, 4, :3] = False
    found = attend_block_sparse(query, key[:, :1], value[:, :1], layout)
    same = (x[:, :1].expand(-1, 3, -1, -1) for x in (key, value))
    mask = expand(layout)
    torch.testing.assert_close(found, attend(query, *same, mask))


def test_skipped_blocks_are_not_read_forwards_or_backwards():
    *inputs, upstream = draw_inputs()
    upstream[..., :9, :] = 0
    mask = masks.window(15, 15, 4)
    leaves = [x.clone().requires_grad_() for x in inputs]
    expected = attend(*leaves, mask)
    gradients = torch.autograd.grad(expected, leaves, upstream)
    # The last two blocks of queries attend to keys from 6 on.
    for x in inputs[1:]:
        x[..., :6, :] = torch.nan
    spoiled = [x.requires_grad_() for x in inputs]
    layout = cover_rule(WINDOW, 15, 15, BLOCK)
    found = attend_block_sparse(*spoiled, layout, WINDOW)
    torch.testing.assert_close(found[..., 9:, :], expected[..., 9:, :])
    again = torch.autograd.grad(found, spoiled, upstream)
    torch.testing.assert_close(again[0][..., 9:, :], gradients[0][..., 9:, :])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("T", "layout", "message"),
    [
        (
            13,
            torch.ones(5, 5).bool(),
            "5 by 5 blocks does not divide 13 queries and 13 keys",
        ),
        (
            15,
            torch.ones(5, 5).bool().tril(-1),
            "block 0 of the 5 blocks of queries attends to none of the 5",
        ),
        (
            15,
            torch.ones(2, 4, 5, 5).bool(),
            r"\(2, 4, 5, 5\) does not fit 2 sequences of 3 heads",
        ),
        (0, torch.ones(1, 1).bool(), "1 by 1 blocks does not divide 0 queries and 0"),
        (15, torch.ones(5, 5), r"must be boolean, .* torch.float32 of shape \(5, 5\)"),
        (15, torch.ones(0, 5).bool(), r"is torch.bool of shape \(0, 5\)"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(T, layout, message):
    with pytest.raises(ValueError, match=message):
        attend_block_sparse(*draw_inputs(T)[:3], layout)


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("size", [40, 520])
def test_autocast_gives_the_type_of_attend_in_any_number_of_threads(
    size, sunk, threads
):
    T, rule = 640, rules.window(640, 640, size)
    inputs = [x.float() for x in draw(*[(2, 2, T, 8)] * 3)]
    sinks = torch.tensor([-1.0, 2.0]) if sunk else None
    mask, layout = masks.window(T, T, size), torch.ones(5, 5).tril().bool()
    expected = attend_with_sink(*inputs, mask, sinks) if sunk else attend(*inputs, mask)
    with torch.autocast("cpu", torch.bfloat16):
        for grad in (False, True):
            leaves = [x.clone().requires_grad_(grad) for x in inputs]
            for found in (
                attend_window(*leaves, size, sinks=sinks),
                attend_block_sparse(*leaves, layout, rule, sinks),
            ):
                assert found.dtype == torch.bfloat16
                torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0)


@pytest.mark.refusal
def test_sinks_and_groups_that_do_not_fit_are_refused():
    query, key, value, _ = draw_inputs()
    layout = torch.ones(5, 5).bool()
    message = r"one number for each of 3 heads, but have shape \(2,\)"
    with pytest.raises(ValueError, match=message):
        attend_block_sparse(query, key, value, layout, sinks=torch.ones(2))
    with pytest.raises(ValueError, match=message):
        attend_window(query, key, value, 4, sinks=torch.ones(2))
    with pytest.raises(
        ValueError, match=r"heads are \(2, 3\) in the query, but \(2, 2\) in the key"
    ):
        attend_block_sparse(query, key[:, :2], value[:, :2], layout)


# Selected keys and blocks.

B, H, G, T, D, SIZE = 2, 6, 3, 10, 7, 2


@pytest.mark.parametrize("count", [1, 3, T + 5])
def test_the_keys_are_those_that_sorting_puts_first(count):
    scores, mask = draw((B, H, T, T))[0], causal_mask(T, T)
    found = select_top_keys(scores, mask, count)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                order = sorted(range(t + 1), key=lambda s: -scores[b, h, t, s])
                assert {*found[b, h, t].nonzero()[:, 0].tolist()} == {*order[:count]}


def test_the_weights_of_blocks_sum_to_one():
    weights = draw((B, H, T, T))[0].softmax(-1)
    blocks = sum_over_blocks(weights, SIZE)
    torch.testing.assert_close(blocks.sum(-1), torch.ones(B, H, T).double())
    torch.testing.assert_close(blocks[..., 1], weights[..., 2:4].sum(-1))


def test_blocks_are_scored_by_their_mean_keys_key_by_key():
    query, key = draw((B, H, T, D), (B, G, T, D))
    found = score_mean_keys(query, key, SIZE)
    some = torch.tensor([9, 0, 4])
    part = score_mean_keys(query[:, :, some], key, SIZE, some)
    torch.testing.assert_close(part, found[:, :, some])
    for h in range(H):
        for t in range(T):
            for m in range(T // SIZE):
                mean = sum(key[0, h * G // H, m * SIZE + i] for i in (0, 1)) / 2
                wanted = float(query[0, h, t] @ mean) / D**0.5
                if m == t // SIZE:
                    wanted = torch.inf
                if m > t // SIZE:
                    wanted = -torch.inf
                assert float(found[0, h, t, m]) == pytest.approx(wanted)


def test_a_block_is_kept_whole_up_to_the_query():
    scores = torch.tensor([[5.0, 1.0, 3.0]])
    mask = torch.tensor([[True, True, True, True, True, False]])
    found = select_top_blocks(scores, mask, count=2, size=2)
    assert found.tolist() == [[True, True, False, False, True, False]]


@pytest.mark.refusal
def test_sizes_that_do_not_fit_are_refused():
    scores, mask = torch.ones(1, 6), torch.ones(1, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match="count must be at least 1, but is 0"):
        select_top_keys(scores, mask, 0)
    with pytest.raises(ValueError, match="size must be at least 1, but is 0"):
        select_top_blocks(scores, mask, 1, 0)
    message = "blocks of 4 do not divide a sequence of length 6"
    with pytest.raises(ValueError, match=message):
        sum_over_blocks(scores, 4)


# The lightning indexer.

J, C, WIDTH = 3, 11, 8


def build_indexer():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LightningIndexer(C, J, WIDTH), torch.randn(B, T, C)


def turn(x, t):
    first = rotate(x[None, None, None, : WIDTH // 2], torch.tensor([t]))
    return torch.cat([first[0, 0, 0], x[WIDTH // 2 :]])


@torch.no_grad()
def test_a_score_is_the_weighted_sum_over_the_heads():
    indexer, x = build_indexer()
    found = indexer(x)
    for t in (0, 3, T - 1):
        for s in range(T):
            key = turn(indexer.norm(indexer.key(x[1, s])), s)
            queries = indexer.query(x[1, t]).reshape(J, WIDTH)
            weights = indexer.weight(x[1, t])
            wanted = sum(
                float(w * torch.relu(turn(q, t) @ key))
                for w, q in zip(weights, queries, strict=True)
            )
            wanted /= (J * WIDTH) ** 0.5
            assert float(found[1, t, s]) == pytest.approx(wanted, abs=1e-5)
    rows = torch.tensor([5, 0, 2])
    torch.testing.assert_close(indexer(x, rows), found[:, rows])


def test_the_loss_is_the_divergence_from_the_mean_weights():
    mask = causal_mask(T, T)
    scores, weights = draw((B, T, T), (B, H, T, T))
    weights = weights.masked_fill(~mask, -torch.inf).softmax(-1)
    found = compute_indexer_loss(scores, weights, mask)
    total = 0.0
    for b in range(B):
        for t in range(T):
            target = weights[b, :, t, : t + 1].mean(0)
            guess = scores[b, t, : t + 1].softmax(-1)
            total += float((target * (target / guess).log()).sum())
    assert float(found) == pytest.approx(total / B / T)


def test_weights_of_zero_give_a_finite_loss_and_gradient():
    mask = causal_mask(T, T)
    weights = torch.zeros(B, H, T, T)
    weights[..., 0] = 1.0
    scores = torch.full((B, T, T), -100.0)
    scores[..., 0] = 100.0
    scores.requires_grad_()
    loss = compute_indexer_loss(scores, weights, mask)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all()
