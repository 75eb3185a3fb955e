"""Every model forward and backward on a real GPU, compared with the CPU."""

import copy

import pytest
import torch

from attnbook import masks
from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from attnbook.decoding.caches import CacheSizes, KVCache
from attnbook.decoding.fast import PackedDecoder
from attnbook.models.lookup_models import LookupModel
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.models.transformer import (
    LanguageModel,
    QKNormAttention,
    Size,
)
from leak_cases import DECODERS, LENGTHS, PREVIOUS, SOURCE, C, V, X
from precision import measure_difference

pytestmark = pytest.mark.cuda
SYMBOLS = torch.tensor([[1, 4, 2, 3, 0, 2], [3, 3, 1, 2, 4, 0]])
SIZE = Size(C, 3, 20, 2)
MASKED = X, None, masks.causal(X.shape[1], X.shape[1])
TRANSLATED = SOURCE, LENGTHS, PREVIOUS
MODELS = {
    "MultiHeadAttention": (lambda: MultiHeadAttention(C, 3), MASKED),
    "GroupedQueryAttention": (lambda: GroupedQueryAttention(C, 3, 1), MASKED),
    "QKNormAttention": (lambda: QKNormAttention(C, 3), MASKED),
    "LanguageModel": (lambda: LanguageModel(V, SIZE), (SYMBOLS,)),
    "LookupModel": (lambda: LookupModel(V, V, V, 7, 11), (PREVIOUS, SOURCE, SOURCE)),
    **{name: (make, TRANSLATED) for name, make in DECODERS.items()},
}


def moved(x):
    return x.cuda() if isinstance(x, torch.Tensor) else x


def results(model, given):
    """Return the output, and the gradients of a random scalar of it."""
    output = model(*given)
    output = output[0] if isinstance(output, tuple) else output
    rng = torch.Generator().manual_seed(1)
    upstream = torch.randn(output.shape, generator=rng).to(output)
    weights = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(output, weights, upstream, allow_unused=True)
    return [output.detach(), *(g for g in grads if g is not None)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_on_the_gpu_what_it_computes_on_the_cpu(name):
    make, given = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = make().double().eval()
    given = [
        x.double() if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x for x in given
    ]  # fmt: skip
    wanted = results(model, given)
    # cuDNN's recurrent networks have a backward pass in training mode only;
    # no model here drops anything out.
    there = copy.deepcopy(model).cuda().train()
    found = results(there, [moved(x) for x in given])
    assert all(x.is_cuda for x in found)
    torch.testing.assert_close([x.cpu() for x in found], wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_packed_weights_decode_on_the_gpu_as_on_the_cpu(dtype):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = ModernDecoder(DecoderConfig(V, 64, 4, 2, 32, 2)).eval()
    found = []
    for device in "cpu", "cuda":
        decoder = PackedDecoder(copy.deepcopy(model).to(device), dtype)
        cache = KVCache(CacheSizes.of(decoder.model), 2, 6)
        pieces = SYMBOLS.to(device).split([3, 2, 1], dim=1)
        found.append(torch.cat([decoder(x, cache).cpu() for x in pieces], dim=1))
    limit = 1e-4 if dtype is torch.float32 else 0.05
    assert measure_difference(*found[::-1]) < limit
