"""A decoder with packed weights against the plain one."""

import pytest
import torch

from attnbook.decoding.caches import CacheSizes, KVCache
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.fast import PackedDecoder, pack_weight
from attnbook.decoding.latent import LatentDecoder, LatentSizes
from attnbook.models.modern_decoder import (
    DecoderConfig,
    ModernDecoder,
    ModernLanguageModel,
)
from perturbed import perturb
from precision import measure_difference

V, C, H, BLOCKS = 29, 24, 6, 3


def build_biased():
    model = ModernDecoder(DecoderConfig(V, C, H, 3, 32, BLOCKS))
    for block in model.blocks:
        for name in "query", "key", "value", "output":
            layer = getattr(block.attention, name)
            layer.bias = torch.nn.Parameter(torch.randn(layer.out_features))
    return model


MODELS = {
    "MHA": lambda: ModernDecoder(DecoderConfig(V, C, H, H, 32, BLOCKS)),
    "GQA": lambda: ModernDecoder(DecoderConfig(V, C, H, 2, 32, BLOCKS, base=50.0)),
    "MQA with QK-norm": lambda: ModernLanguageModel(V, C, H, 1, 32, BLOCKS),
    "MLA": lambda: LatentDecoder(V, LatentSizes(C, 3, 8, 6, 4, 5), 32, BLOCKS),
    "biases": build_biased,
}


def build(name, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return perturb(MODELS[name]()).to(dtype).eval()


def run(decoder):
    """Return the logits of two sequences that arrive in pieces."""
    cache = KVCache(CacheSizes.of(decoder.model), 2, 12)
    ids = torch.randint(V, (2, 12), generator=torch.Generator().manual_seed(1))
    return torch.cat([decoder(x, cache) for x in ids.split([7, 1, 4], dim=1)], dim=1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-12)]
)
def test_packed_weights_give_the_same_logits(name, dtype, limit):
    model = build(name, dtype)
    packed = PackedDecoder(model, dtype, window=4, sinks=1)
    found, wanted = run(packed), run(CachedDecoder(model, window=4, sinks=1))
    assert measure_difference(found, wanted) < limit


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_fewer_bits_give_nearly_the_same_logits(dtype):
    model = build("GQA")
    found, wanted = run(PackedDecoder(model, dtype)), run(CachedDecoder(model))
    assert 0 < measure_difference(found, wanted) < 0.1


@pytest.mark.refusal
def test_a_type_without_a_product_is_refused():
    with pytest.raises(ValueError, match=r"torch.float16 are none of"):
        pack_weight(torch.ones(2, 2), torch.float16)
