"""Our lightning indexer selects the keys that transformers' one selects.

Theirs returns only which keys are selected, so that an equal number of keys
must agree for every query.
"""

import torch
from transformers import DeepseekV32Config
from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer

from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import LightningIndexer, select_top_keys
from attnbook.positions.absolute import frequencies
from attnbook.positions.rotary import halves_permutation, rotary_angles

B, T, C, J, D, COUNT = 2, 40, 24, 3, 16, 7


def build():
    """Return both indexers with the same weights, and an input.

    Theirs rotates columns i and i + D / 4 of the rotated half, ours 2i and
    2i + 1: the rows of that half are permuted.
    """
    config = DeepseekV32Config(
        hidden_size=C,
        q_lora_rank=C,
        index_n_heads=J,
        index_head_dim=D,
        qk_rope_head_dim=D // 2,
        index_topk=COUNT,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = DeepseekV32Indexer(config, 0)
        for x in theirs.parameters():
            torch.nn.init.normal_(x)
        x = torch.randn(B, T, C)
    ours = LightningIndexer(C, J, D)
    order = torch.arange(D)
    order[halves_permutation(D // 2)] = torch.arange(D // 2)
    query = theirs.wq_b.weight.detach().reshape(J, D, C)[:, order]
    ours.load_state_dict(
        {
            "query.weight": query.reshape(J * D, C),
            "key.weight": theirs.wk.weight[order],
            "norm.weight": theirs.k_norm.weight[order],
            "norm.bias": theirs.k_norm.bias[order],
            "weight.weight": theirs.weights_proj.weight,
        }
    )
    return ours, theirs, x


@torch.no_grad()
def select_theirs(theirs, x):
    angle = rotary_angles(torch.arange(T), frequencies(D // 2))
    angle = torch.cat([angle, angle], dim=-1).expand(B, T, D // 2)
    mask = causal_mask(T, T).expand(B, T, T)
    found = theirs(x, x, (angle.cos(), angle.sin()), mask, torch.arange(T))
    kept = torch.zeros(B, T, T, dtype=torch.bool)
    return kept.scatter_(-1, found.long(), True) & mask


@torch.no_grad()
def test_the_same_keys_are_selected():
    ours, theirs, x = build()
    found = select_top_keys(ours(x), causal_mask(T, T), COUNT)
    assert (found == select_theirs(theirs, x)).all()
    assert found.sum(-1)[0].tolist() == [min(t + 1, COUNT) for t in range(T)]
