"""A decoder with packed weights against the plain one."""

import pytest
import torch

from attnbook.decoding.caches import CacheSizes, KVCache
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.fast import PackedDecoder, pack_weight
from attnbook.decoding.generation import generate
from attnbook.decoding.latent import LatentDecoder, LatentSizes
from attnbook.decoding.speculation import PromptLookup, speculate
from attnbook.models.modern_decoder import (
    DecoderConfig,
    ModernDecoder,
    ModernLanguageModel,
)
from perturbed import perturb
from precision import measure_difference

V, C, H, BLOCKS, T = 29, 24, 6, 3, 12
MODELS = {
    "MHA": lambda: ModernDecoder(DecoderConfig(V, C, H, H, 32, BLOCKS)),
    "GQA": lambda: ModernDecoder(DecoderConfig(V, C, H, 2, 32, BLOCKS, base=50.0)),
    "MQA with QK-norm": lambda: ModernLanguageModel(V, C, H, 1, 32, BLOCKS),
    "MLA": lambda: LatentDecoder(V, LatentSizes(C, 3, 8, 6, 4, 5), 32, BLOCKS),
}
each_model = pytest.mark.parametrize("name", MODELS)


def build(name, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return perturb(MODELS[name]()).to(dtype).eval()


def draw_ids(*shape):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(1))


def run(decoder, model, pieces=(7, 1, 4)):
    """Return the logits of two sequences that arrive in pieces."""
    cache = KVCache(CacheSizes.of(model), 2, T)
    parts = draw_ids(2, T).split(list(pieces), dim=1)
    return torch.cat([decoder(x, cache) for x in parts], dim=1)


@each_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_weights_give_the_same_logits(name, dtype):
    model = build(name, dtype)
    packed = PackedDecoder(model, dtype)
    found, wanted = (run(x, model) for x in (packed, CachedDecoder(model)))
    limit = 1e-5 if dtype == torch.float32 else 1e-12
    assert measure_difference(found, wanted) < limit


@pytest.mark.parametrize(("dtype", "limit"), [(torch.bfloat16, 0.1), (torch.int8, 0.1)])
def test_fewer_bits_give_nearly_the_same_logits(dtype, limit):
    model = build("GQA")
    found, wanted = (
        run(PackedDecoder(model, dtype), model),
        run(CachedDecoder(model), model),
    )
    assert 0 < measure_difference(found, wanted) < limit


def test_biases_and_the_window_are_obeyed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = build("GQA")
        for block in model.blocks:
            for name in "query", "key", "value", "output":
                layer = getattr(block.attention, name)
                layer.bias = torch.nn.Parameter(torch.randn(layer.out_features))
    found, wanted = (
        run(kind(model, window=4, sinks=1), model)
        for kind in (PackedDecoder, CachedDecoder)
    )
    assert measure_difference(found, wanted) < 1e-5


def test_ragged_batches_and_speculation_generate_what_a_prompt_alone_does():
    model = build("GQA", torch.float64)
    decoder, sizes = PackedDecoder(model, torch.float64), CacheSizes.of(model)
    prompts = [draw_ids(n) for n in (9, 4, 1)]
    real = torch.arange(9) >= torch.tensor([[0], [5], [8]])
    ids = torch.zeros(3, 9, dtype=torch.long)
    ids[real] = torch.cat(prompts)
    together = generate(decoder, ids, 8, KVCache(sizes, 3, 16), mask=real)
    for prompt, found in zip(prompts, together, strict=True):
        alone = generate(decoder, prompt[None], 8, KVCache(sizes, 1, 16))
        assert [found] == alone
        guess = speculate(
            decoder, prompt[None], 8, KVCache(sizes, 1, 16), PromptLookup(1, 3)
        )
        assert [guess.ids] == alone


@pytest.mark.refusal
def test_a_type_without_a_product_is_refused():
    with pytest.raises(ValueError, match=r"torch.float16 are none of"):
        pack_weight(torch.ones(2, 2), torch.float16)
