"""Our Vision Transformer equals transformers', forwards and backwards.

"Equal" means that the largest difference is below 10⁻⁵ of the largest number.
"""

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from attnbook.models.vision import VisionTransformer
from precision import draw, measure_difference, run_with_gradients

LIMIT = 1e-5
# Size of the images, of the patches, width, heads, blocks, channels.
SIZES = [(6, 3, 8, 2, 2, 2), (8, 2, 12, 3, 1, 1), (5, 5, 6, 1, 3, 3)]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)


def build(size):
    """Return transformers' model with uneven weights, and ours with them."""
    side, patch, width, heads, layers, channels = size
    config = ViTConfig(
        image_size=side,
        patch_size=patch,
        hidden_size=width,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=10,
        num_channels=channels,
        hidden_act="relu",
        layer_norm_eps=1e-5,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = ViTForImageClassification(config).eval()
        with torch.no_grad():
            for p in theirs.parameters():
                p.add_(0.2 * torch.randn_like(p))
    ours = VisionTransformer(side, patch, width, heads, layers, 10, channels, classes=5)
    copy_weights(theirs, ours)
    return theirs, ours.eval()


@torch.no_grad()
def copy_weights(theirs, ours):
    """Copy every weight of transformers' model into ours."""
    embed = theirs.vit.embeddings
    ours.class_token.copy_(embed.cls_token[0, 0])
    ours.positions.table.copy_(embed.position_embeddings[0])
    projection = embed.patch_embeddings.projection
    ours.project.weight.copy_(projection.weight.flatten(1))
    ours.project.bias.copy_(projection.bias)
    for block, part in zip(ours.blocks, theirs.vit.layers, strict=True):
        inner, (first, second) = part.attention, block.residuals
        for mine, other in (
            (block.attention.query, inner.q_proj),
            (block.attention.key, inner.k_proj),
            (block.attention.value, inner.v_proj),
            (block.attention.output, inner.o_proj),
            (block.feed_forward.up, part.mlp.fc1),
            (block.feed_forward.down, part.mlp.fc2),
            (first.norm, part.layernorm_before),
            (second.norm, part.layernorm_after),
        ):
            mine.load_state_dict(other.state_dict())
    ours.norm.load_state_dict(theirs.vit.layernorm.state_dict())
    ours.output.load_state_dict(theirs.classifier.state_dict())


@each_size
def test_logits_and_gradients_are_theirs(size):
    theirs, ours = build(size)
    images, upstream = draw((3, size[5], size[0], size[0]), (3, 5))
    found, wanted = (
        run_with_gradients(run, [images.float()], upstream.float())
        for run in (ours, lambda x: theirs(x).logits)
    )
    for pair in zip(found, wanted, strict=True):
        assert measure_difference(*pair) < LIMIT
