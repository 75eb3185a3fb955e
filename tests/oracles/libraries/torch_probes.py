"""PyTorch, transformers, x-transformers and PyTorch Geometric."""

import importlib.metadata
import importlib.util

import numpy as np
import torch
import transformers
from probing import (
    describe_attention,
    describe_rotation,
    describe_sinusoids,
    describe_weights,
    describe_window,
    name_result,
    print_words,
    try_call,
)
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers.masking_utils import sliding_window_overlay
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.whisper import modeling_whisper
from x_transformers import Decoder
from x_transformers.attend import Attend
from x_transformers.x_transformers import apply_rotary_pos_emb

torch.manual_seed(0)
version = importlib.metadata.version
TORCH = f"torch {torch.__version__.partition('+')[0]}"


def tensors(*arrays):
    return [
        None if x is None else torch.as_tensor(np.ascontiguousarray(x)) for x in arrays
    ]


@torch.no_grad()
def sdpa(query, key, value, mask=None, causal=False, **options):
    query, key, value, mask = tensors(query, key, value, mask)
    options["enable_gqa"] = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, **options
    )


def make_identity(width, heads, **options):
    layer = nn.MultiheadAttention(width, heads, bias=False, batch_first=True, **options)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(width))
    return layer


@torch.no_grad()
def module(query, key, value, mask=None, need_weights=True):
    query, key, value, mask = tensors(query, key, value, mask)
    H, D = query.shape[1], query.shape[3]
    layer = make_identity(H * D, H).train()
    merged = [x.transpose(1, 2).flatten(2) for x in (query, key, value)]
    output = layer(*merged, attn_mask=mask, need_weights=need_weights)[0]
    return output.unflatten(2, (H, D)).transpose(1, 2)


@torch.no_grad()
def flex(query, key, value, mask=None):
    query, key, value, mask = tensors(query, key, value, mask)
    T, S = query.shape[2], key.shape[2]
    block = None
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError("a mask_mod gives booleans")
        block = create_block_mask(
            lambda b, h, q, k: mask[q, k], None, None, T, S, device="cpu"
        )
    grouped = query.shape[1] != key.shape[1]
    return flex_attention(query, key, value, block_mask=block, enable_gqa=grouped)


def describe_module():
    x = torch.randn(1, 3, 8)
    layer = make_identity(8, 2, dropout=0.5).train()
    words = describe_attention(
        module, "(B, T, H·D)", causal=False, grouped=False, width=False
    )
    without = describe_attention(
        lambda *x, **options: module(*x, **options, need_weights=False),
        "(B, T, H·D)",
        **{"causal": False, "grouped": False, "width": False},
    )
    words["empty row, without weights"] = without["empty row, boolean"]
    return words | describe_weights(layer(x, x, x)[1].detach(), 2)


def describe_x_transformers():
    def attend(query, key, value, mask=None, causal=False):
        query, key, value, mask = tensors(query, key, value, mask)
        mask = None if mask is None else mask[None, None]
        return Attend(causal=causal)(query, key, value, mask=mask)[0].detach()

    decoder = Decoder(dim=128, depth=1, heads=2, attn_dim_head=64, rotary_pos_emb=True)

    def rotate(x):
        table, _ = decoder.rotary_pos_emb.forward_from_seq_len(len(x))
        turned = apply_rotary_pos_emb(torch.as_tensor(x)[None, None], table)
        return turned[0, 0].numpy()

    return describe_attention(attend, "(B, H, T, D)") | describe_rotation(rotate)


def build_llama(attention, **options):
    config = transformers.LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        **options,
    )
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config, attn_implementation=attention)


def describe_transformers(attention):
    """Return the words of a random Llama: its 4-D masks, and its weights."""
    ids = torch.tensor([[3, 4, 5]])
    model = build_llama(attention, attention_dropout=0.5).eval()

    @torch.no_grad()
    def run(mask):
        return model(ids, attention_mask=mask[None, None]).last_hidden_state

    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    causal[1:, 0] = False
    lowest = torch.zeros(3, 3).masked_fill(~causal, torch.finfo().min)
    names = {"attends": run(lowest), "added": run(causal + 0.0)}
    words = {
        name: name_result(try_call(run, causal.to(dtype)), names)
        for name, dtype in (("True", torch.bool), ("float 1", torch.float32))
    }
    weights = model.train()(ids, output_attentions=True).attentions
    if len(weights) == 0:
        return words | {"weights": "an empty tuple"}
    return words | describe_weights(weights[0].detach(), 2)


@torch.no_grad()
def describe_padding_masks():
    """Return the words of transformers' 2-D masks."""
    ids, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 1, 0]])
    model = build_llama("sdpa").eval()
    expected = {"attends": model(ids[:, :2]).last_hidden_state}
    return {
        name: name_result(
            model(ids, attention_mask=mask.to(dtype)).last_hidden_state[:, :2], expected
        )
        for name, dtype in (
            ("True", torch.bool),
            ("integer 1", torch.int64),
            ("float 1", torch.float32),
        )
    }


def describe_rotations():
    def rotate_llama(x):
        model = modeling_llama.LlamaRotaryEmbedding(
            transformers.LlamaConfig(head_dim=x.shape[1])
        )
        positions = torch.arange(len(x))[None]
        x = torch.as_tensor(x)[None, None]
        return modeling_llama.apply_rotary_pos_emb(x, x, *model(x, positions))[0][
            0, 0
        ].numpy()

    def rotate_gptj(x):
        table = modeling_gptj.create_sinusoidal_positions(len(x), x.shape[1])
        sine, cosine = table[None].chunk(2, dim=-1)
        x = torch.as_tensor(x)[None, :, None]
        return modeling_gptj.apply_rotary_pos_emb(x, sine, cosine)[0, :, 0].numpy()

    return describe_rotation(rotate_llama), describe_rotation(rotate_gptj)


def describe_mistral_window():
    rule = sliding_window_overlay(3)

    def attend(query, key, value):
        q, k = torch.arange(9)[:, None], torch.arange(9)
        mask = (rule(0, 0, q, k) & (k <= q)).numpy()
        return sdpa(query, key, value, mask)

    return describe_window(attend)


def describe_graph():
    from torch_geometric.nn import GATConv

    layer = GATConv(4, 4, heads=2, dropout=0.5, bias=False, add_self_loops=False)
    edges = torch.tensor([[1, 2, 2], [0, 0, 1]])
    output = layer.eval()(torch.randn(3, 4), edges)
    _, (_, weights) = layer.train()(
        torch.randn(3, 4), edges, return_attention_weights=True
    )
    into_first = weights[:2].sum(0)
    empty = name_result(output[2].detach().numpy(), {"zeros": 0})
    after = not torch.allclose(into_first, torch.ones(2), atol=1e-3)
    return {
        "empty row, no edge": empty,
        "weights": "each head",
        "weights and dropout": "after dropout" if after else "before dropout",
    }


def load_file(distribution, name):
    """Return one module of a package whose other modules need other versions."""
    path = importlib.metadata.distribution(distribution).locate_file(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def describe_joeynmt():
    layer = load_file("joeynmt", "joeynmt/attention.py").BahdanauAttention(4, 4, 4)
    values = torch.ones(1, 2, 4) * torch.tensor([10.0, 20.0])[None, :, None]

    def attend(mask):
        layer.compute_proj_keys(torch.zeros(1, 2, 4))
        mask = torch.tensor([[mask]])
        return layer(torch.zeros(1, 1, 4), mask, values)[0].detach()

    names = {"attends": 10, "masked out": 20, "NaN": np.nan}
    return {
        "True": name_result(try_call(attend, [True, False]), names),
        "empty row, boolean": name_result(try_call(attend, [False, False]), names),
    }


if __name__ == "__main__":
    llama, gptj = describe_rotations()
    marian = transformers.models.marian.modeling_marian
    table = marian.MarianSinusoidalPositionalEmbedding(4, 8)
    table.weight = nn.Parameter(table.create_weight())
    HUGGING = f"transformers {transformers.__version__}"
    print_words(
        {
            "torch sdpa": (TORCH, describe_attention(sdpa, "(B, H, T, D)")),
            "torch nn.MultiheadAttention": (TORCH, describe_module()),
            "torch FlexAttention": (
                TORCH,
                describe_attention(flex, "(B, H, T, D)", causal=False),
            ),
            "x-transformers": (
                f"x-transformers {version('x-transformers')}",
                describe_x_transformers(),
            ),
            "transformers 2-D": (HUGGING, describe_padding_masks()),
            "transformers 4-D eager": (HUGGING, describe_transformers("eager")),
            "transformers 4-D sdpa": (HUGGING, describe_transformers("sdpa")),
            "transformers Llama": (HUGGING, llama),
            "transformers GPT-J": (HUGGING, gptj),
            "transformers Mistral": (
                HUGGING,
                {"window of 3": describe_mistral_window()},
            ),
            "transformers Marian": (
                HUGGING,
                {"sinusoids": describe_sinusoids(table.weight.detach())},
            ),
            "transformers Whisper": (
                HUGGING,
                {"sinusoids": describe_sinusoids(modeling_whisper.sinusoids(4, 8))},
            ),
            "torch_geometric GATConv": (
                f"torch_geometric {version('torch_geometric')}",
                describe_graph(),
            ),
            "joeynmt": (f"joeynmt {version('joeynmt')}", describe_joeynmt()),
        }
    )
