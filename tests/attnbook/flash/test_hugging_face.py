import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from attnbook import masks
from attnbook.flash import flash_attention
from attnbook.flash.hugging_face import attention, read_lengths, register

TOKENS, LENGTHS = (2, 23), (23, 17)


def asking(causal):
    module = nn.Identity()
    module.is_causal = causal
    return module


def drawn():
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, 7, 4, generator=rng) for h in (6, 2, 2)]


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_flash_attention_with_their_axes(causal):
    layer, inputs = asking(causal), drawn()
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    output, weights = attention(layer, *inputs, mask.long(), scaling=0.3)
    expected = flash_attention(
        *inputs, causal=causal, key_lengths=torch.tensor([7, 4]), scale=0.3
    )
    assert weights is None
    assert torch.equal(output, expected.transpose(1, 2))
    assert output.is_contiguous()


def test_window_and_cap_are_passed_on():
    layer, inputs = asking(True), drawn()
    output, _ = attention(layer, *inputs, None, sliding_window=3, softcap=2.0)
    expected = flash_attention(*inputs, window=3, softcap=2.0)
    assert torch.equal(output, expected.transpose(1, 2))


def test_no_mask_is_no_lengths():
    assert read_lengths(None, 5) is None


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "more", "message"),
    [
        (None, {"dropout": 0.1}, "must be 0 here, not 0.1"),
        (
            None,
            {"is_causal": False, "sliding_window": 3},
            "a window of 3 looks back, but the attention is not causal",
        ),
        (None, {"s_aux": torch.ones(6)}, "sinks"),
        (
            torch.ones(2, 1, 7, 7),
            {},
            r"\(batch, 7\), but is \(2, 1, 7, 7\)",
        ),
        (
            torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]]),
            {},
            "sequence 1 of 5 tokens has some before its last",
        ),
    ],
)
def test_unsupported_options_are_refused(mask, more, message):
    layer = asking(True)
    with pytest.raises(ValueError, match=message):
        attention(layer, *drawn(), mask, **more)


def test_a_layer_reads_no_mask_that_is_not_on_the_cpu():
    """On the device "meta" there is nothing to read."""
    inputs = [x.to("meta") for x in drawn()]
    mask = torch.ones(2, 7, dtype=torch.long, device="meta")
    output, _ = attention(asking(True), *inputs, mask)
    assert output.shape == (2, 7, 6, 4)


@pytest.mark.refusal
def test_a_registered_model_checks_its_mask_once_before_its_layers(monkeypatch):
    """`transformers` is played by two registries and its mask function."""
    found = {}
    registry = SimpleNamespace(register=found.__setitem__)
    masking = SimpleNamespace(
        ALL_MASK_ATTENTION_FUNCTIONS={"flash_attention_2": lambda mask: mask},
        AttentionMaskInterface=SimpleNamespace(
            register=lambda name, make: found.update(mask=make)
        ),
    )
    whole = SimpleNamespace(AttentionInterface=registry, masking_utils=masking)
    monkeypatch.setitem(sys.modules, "transformers", whole)
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masking)
    register("ours")
    assert found["ours"] is attention
    assert found["mask"](None) is None
    right = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert torch.equal(found["mask"](right), right)
    with pytest.raises(ValueError, match="sequence 0 of 2 tokens"):
        found["mask"](right.flip(1))


class FakeAttention(nn.Module):
    """A layer as `transformers` has it: it calls what is registered."""

    def __init__(self, registered, window):
        super().__init__()
        self.is_causal, self.window, self.registered = True, window, registered
        self.query, self.key, self.value, self.out = (
            nn.Linear(32, width, bias=False) for width in (32, 16, 16, 32)
        )

    def forward(self, x, mask, past):
        heads = [
            f(x).unflatten(-1, (-1, 8)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        ]
        if past is not None:
            pairs = zip(past, heads[1:], strict=True)
            heads[1:] = [torch.cat(pair, 2) for pair in pairs]
        # It also gives arguments that our attention does not know.
        output, _ = self.registered(
            self,
            *heads,
            mask,
            dropout=0.0,
            scaling=8**-0.5,
            sliding_window=self.window,
            position_ids=None,
        )
        return self.out(output.flatten(2)), heads[1:]


class FakeDecoder(nn.Module):
    """A decoder as `transformers` has it, of two layers with a window of 11."""

    def __init__(self, attention, make_mask):
        super().__init__()
        self.make_mask = make_mask
        self.embed, self.head = nn.Embedding(31, 32), nn.Linear(32, 31)
        self.layers = nn.ModuleList(FakeAttention(attention, 11) for _ in range(2))

    def forward(self, tokens, attention_mask=None, past_key_values=None):
        x, mask = self.embed(tokens), self.make_mask(attention_mask)
        caches = []
        for i, layer in enumerate(self.layers):
            past = past_key_values[i] if past_key_values else None
            output, cache = layer(x, mask, past)
            x = x + output
            caches.append(cache)
        return SimpleNamespace(logits=self.head(x), past_key_values=caches)


def sdpa(module, query, key, value, mask, scaling, sliding_window, **_):
    """PyTorch's attention, called as `transformers` calls a registered one."""
    T, S = query.shape[2], key.shape[2]
    seen = masks.causal(T, S) & masks.window(T, S, sliding_window)
    if mask is not None:
        seen = seen & mask.bool()[:, None, None]
    output = nn.functional.scaled_dot_product_attention(
        query, key, value, seen, scale=scaling, enable_gqa=True
    )
    return output.transpose(1, 2), None


@pytest.fixture
def decoder(monkeypatch):
    """Return a maker of decoders, the same weights for every attention.

    `transformers` is played by its two registries and `FakeDecoder`: this
    tests what is passed on, and no release of the package.
    """
    attentions, makers = {"sdpa": sdpa}, {"sdpa": lambda mask: mask}
    masking = SimpleNamespace(
        ALL_MASK_ATTENTION_FUNCTIONS={"flash_attention_2": lambda mask: mask},
        AttentionMaskInterface=SimpleNamespace(register=makers.__setitem__),
    )
    whole = SimpleNamespace(
        AttentionInterface=SimpleNamespace(register=attentions.__setitem__),
        masking_utils=masking,
    )
    monkeypatch.setitem(sys.modules, "transformers", whole)
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masking)
    register()

    def make(name):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return FakeDecoder(attentions[name], makers[name])

    return make


@pytest.mark.kernel
@pytest.mark.parametrize("padded", [False, True])
def test_a_decoder_has_the_same_logits_and_gradients_as_with_sdpa(padded, decoder):
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 31, TOKENS, generator=rng)
    mask = torch.arange(TOKENS[1]) < torch.tensor(LENGTHS)[:, None]
    found = []
    for name in ("sdpa", "attnbook"):
        model = decoder(name)
        given = {"attention_mask": mask.long()} if padded else {}
        logits = model(tokens, **given).logits
        kept = logits[mask] if padded else logits
        upstream = torch.randn(kept.shape, generator=torch.Generator().manual_seed(1))
        first = next(model.parameters())
        found.append([kept, *torch.autograd.grad(kept, first, upstream)])
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


@pytest.mark.kernel
def test_a_decoder_continues_from_its_kv_cache(decoder):
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 31, TOKENS, generator=rng)
    model = decoder("attnbook").eval()
    with torch.no_grad():
        whole = model(tokens).logits[:, -1]
        past = model(tokens[:, :-1]).past_key_values
        last = model(tokens[:, -1:], past_key_values=past).logits[:, -1]
    torch.testing.assert_close(last, whole, atol=1e-4, rtol=1e-4)
