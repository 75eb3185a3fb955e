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
from torch.distributed.tensor.experimental._context_parallel import _attention as torchs
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.tiled import attend_tiled_gradient
from attnbook.parallel import ring
from attnbook.parallel.heads import TensorParallelAttention
from attnbook.parallel.ranks import Ranks

# The processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
HEADS, WIDTH = 4, 32


@pytest.fixture(scope="module")
def two():
    with Ranks(2, limit=120) as ranks:
        yield ranks


def attend(query, key, value, is_causal):
    positions = torch.arange(query.shape[2]), torch.arange(key.shape[2])
    return ring.attend_to_shard(query, key, value, *positions, is_causal)


def differentiate(query, key, value, out, logsumexp, is_causal, grad_out):
    positions = torch.arange(query.shape[2]), torch.arange(key.shape[2])
    scores = ring.ShardScores(query.shape[-1], *positions, is_causal, None)
    given = query, key, value, out, logsumexp, grad_out
    return attend_tiled_gradient(*given, scores=scores)


def run_both_rings(group, causal):
    """Return outputs and gradients of the book's ring and of PyTorch's."""
    layout = (ring.zigzag if causal else ring.contiguous)(24, group.size)
    torchs._cp_options.enable_load_balance = causal
    torch.manual_seed(0)
    whole = torch.randn(4, 2, 3, 24, 8)
    *inputs, upstream = (ring.take_shard(x, layout[group.rank]) for x in whole)
    inputs = [x.requires_grad_() for x in inputs]
    output = ring.ring_attention(*inputs, group, layout, causal)
    ours = [output.detach(), *torch.autograd.grad(output, inputs, upstream)]
    inputs = [x.detach() for x in inputs]
    where = init_device_mesh("cpu", (group.size,)).get_group(), 2
    out, lse, *_ = torchs._templated_ring_attention(
        *where, attend, *inputs, is_causal=causal
    )
    grads = torchs._templated_ring_attention_backward(
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
    ours = TensorParallelAttention(attention, group)(x, mask)
    plan = dict.fromkeys(("query", "key", "value"), ColwiseParallel())
    plan["output"] = RowwiseParallel()
    parallelize_module(attention, init_device_mesh("cpu", (group.size,)), plan)
    attention.heads, attention.groups = HEADS // group.size, 2 // group.size
    outputs = ours, attention(x, mask=mask)
    return [(y.detach(), *torch.autograd.grad(y, x, upstream)) for y in outputs]


def test_the_heads_of_dtensors(two):
    attention = MultiHeadAttention(WIDTH, HEADS, groups=2)
    tensors = [torch.randn(2, 9, WIDTH) for _ in range(2)]
    for ours, theirs in two.run(run_both_layers, attention, *tensors):
        torch.testing.assert_close(ours, theirs)


def run_llama_layer(group, folder, x):
    """Return the output of the book's layer, and of one that transformers divides."""
    os.environ |= {"RANK": str(group.rank), "LOCAL_RANK": str(group.rank)}
    os.environ["WORLD_SIZE"] = str(group.size)
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
    heads = dict(num_attention_heads=HEADS, num_key_value_heads=2)
    widths = dict(hidden_size=WIDTH, intermediate_size=8, vocab_size=7)
    config = LlamaConfig(num_hidden_layers=1, **heads, **widths)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    for ours, theirs in two.run(run_llama_layer, tmp_path, torch.randn(2, 9, WIDTH)):
        torch.testing.assert_close(ours, theirs)
