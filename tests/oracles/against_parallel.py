"""Attention over several processes, against PyTorch's and transformers' own.

PyTorch's ring takes any attention: it is given the book's tiles, so that only
messages, their order, merging and balancing differ.
"""

import os
import sys

import cloudpickle
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.tiled import attend_tiled_gradient
from attnbook.parallel.heads import TensorParallelAttention
from attnbook.parallel.ranks import Ranks
from attnbook.parallel.ring import (
    ShardScores,
    attend_to_shard,
    contiguous,
    ring_attention,
    take_shard,
    zigzag,
)

# The processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
HEADS, WIDTH = 4, 32


@pytest.fixture(scope="module")
def two():
    with Ranks(2, limit=120) as ranks:
        yield ranks


def attend(query, key, value, is_causal):
    rows, columns = (torch.arange(x.shape[2]) for x in (query, key))
    return attend_to_shard(query, key, value, rows, columns, is_causal)


def differentiate(query, key, value, out, logsumexp, is_causal, grad_out):
    rows, columns = (torch.arange(x.shape[2]) for x in (query, key))
    scores = ShardScores(query.shape[-1], rows, columns, is_causal, None)
    return attend_tiled_gradient(
        query, key, value, out, logsumexp, grad_out, scores=scores
    )


def run_both_rings(group, causal):
    """Return outputs and gradients of the book's ring and of PyTorch's."""
    mesh = init_device_mesh("cpu", (group.size,))
    layout = (zigzag if causal else contiguous)(24, group.size)
    ring._cp_options.enable_load_balance = causal
    rng = torch.Generator().manual_seed(0)
    *inputs, upstream = (
        take_shard(torch.randn(2, 3, 24, 8, generator=rng), layout[group.rank])
        for _ in range(4)
    )
    inputs = [x.requires_grad_() for x in inputs]
    output = ring_attention(*inputs, group, layout, causal)
    output.backward(upstream)
    ours = [output.detach(), *(x.grad for x in inputs)]
    inputs = [x.detach() for x in inputs]
    where = mesh.get_group(), 2
    out, lse = ring._templated_ring_attention(
        *where, attend, *inputs, is_causal=causal
    )[:2]
    grads = ring._templated_ring_attention_backward(
        *where, differentiate, upstream, "grad_out", *inputs, out, lse, causal
    )
    return ours, [out, *grads[:3]]


@pytest.mark.parametrize("causal", [True, False])
def test_the_ring_of_pytorch(two, causal):
    for ours, theirs in two.run(run_both_rings, causal):
        torch.testing.assert_close(ours, theirs)


def run_both_layers(group, attention, x, upstream):
    """Return the output and the gradient on x of the book's layer and of DTensors'."""
    x, mask = x.requires_grad_(), torch.ones(9, 9).tril().bool()
    output = TensorParallelAttention(attention, group)(x, mask)
    ours = [output.detach(), *torch.autograd.grad(output, x, upstream)]
    plan = dict.fromkeys(("query", "key", "value"), ColwiseParallel())
    plan["output"] = RowwiseParallel()
    parallelize_module(attention, init_device_mesh("cpu", (group.size,)), plan)
    attention.heads, attention.groups = HEADS // group.size, 2 // group.size
    output = attention(x, mask=mask)
    return ours, [output.detach(), *torch.autograd.grad(output, x, upstream)]


def test_the_heads_of_dtensors(two):
    attention = MultiHeadAttention(WIDTH, HEADS, groups=2)
    tensors = [torch.randn(2, 9, WIDTH) for _ in range(2)]
    for ours, theirs in two.run(run_both_layers, attention, *tensors):
        torch.testing.assert_close(ours, theirs)


def run_llama_layer(group, folder, x):
    """Return the output of the book's layer, and of one that transformers divides."""
    numbers = {"RANK": group.rank, "LOCAL_RANK": group.rank, "WORLD_SIZE": group.size}
    os.environ |= {name: str(number) for name, number in numbers.items()}
    whole = LlamaForCausalLM.from_pretrained(folder).model.layers[0].self_attn
    attention = MultiHeadAttention(WIDTH, HEADS, groups=2, bias=False)
    for name in ("query", "key", "value", "output"):
        theirs = getattr(whole, f"{name[0]}_proj").weight
        getattr(attention, name).weight.data.copy_(theirs)
    mask = torch.ones(9, 9).tril().bool()
    ours = TensorParallelAttention(attention, group)(x, mask).detach()
    divided = LlamaForCausalLM.from_pretrained(folder, tp_plan="auto")
    still = torch.ones(1, 9, WIDTH // HEADS), torch.zeros(1, 9, WIDTH // HEADS)
    layer = divided.model.layers[0].self_attn
    output = layer(x, position_embeddings=still, attention_mask=mask[None, None])[0]
    assert layer.q_proj.weight.to_local().shape == (WIDTH // group.size, WIDTH)
    return ours, output.detach()


def test_the_heads_of_transformers(two, tmp_path):
    config = LlamaConfig(
        vocab_size=7,
        hidden_size=WIDTH,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    for ours, theirs in two.run(run_llama_layer, tmp_path, torch.randn(2, 9, WIDTH)):
        torch.testing.assert_close(ours, theirs)
