"""Generation equals that of transformers: caches, batches, latents, speculation.

In single precision, as in against_transformers.py. The greedy symbols of these models
differ by far more in their logits than the libraries do.
"""

import pytest
import torch
import transformers as hf

from attnbook.decoding.caches import CacheSizes, KVCache, PagePool
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.generation import Sampling, generate
from attnbook.decoding.latent import LatentDecoder, LatentSizes
from attnbook.decoding.scheduler import Request, serve
from attnbook.decoding.speculation import DraftModel, PromptLookup, speculate
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.pretrained import convert_llama_weights, read_llama_config
from precision import measure_difference

V, LIMIT, PAD = 97, 1e-5, 0
SIZES = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,
    "pad_token_id": PAD,
    "eos_token_id": None,
    "bos_token_id": None,
}
PROMPTS = [[5, 9, 31, 7, 5, 9, 31], [8, 8, 2], [77, 4, 4, 90, 1]]


def build(kind, config, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


def build_llama(layers=2, window=None, seed=0):
    """Return transformers' model, and ours with its weights."""
    given = SIZES | {"num_key_value_heads": 2, "num_hidden_layers": layers}
    if window is None:
        theirs = build(hf.LlamaForCausalLM, hf.LlamaConfig(**given), seed)
    else:
        config = hf.MistralConfig(**given, sliding_window=window)
        theirs = build(hf.MistralForCausalLM, config, seed)
    config = read_llama_config(theirs.config.to_dict() | {"model_type": "llama"})
    ours = ModernDecoder(config).eval()
    ours.load_state_dict(convert_llama_weights(theirs.state_dict(), config))
    return theirs, CachedDecoder(ours, window)


def make_cache(ours, capacity=40, sequences=1):
    return KVCache(CacheSizes.of(ours.model), sequences, capacity)


def compare_passes(theirs, ours):
    """Compare logits of every pass; return both caches of 14 symbols."""
    past, cache = hf.DynamicCache(config=theirs.config), make_cache(ours, 14)
    for piece in torch.tensor([PROMPTS[0] * 2]).split([6, 1, 1, 4, 1, 1], dim=1):
        with torch.no_grad():
            expected = theirs(piece, past_key_values=past).logits
        assert measure_difference(ours(piece, cache), expected) < LIMIT
    return past.layers[-1], cache.tensors


def generate_theirs(model, ids, count=20, **more):
    found = model.generate(ids, max_new_tokens=count, do_sample=False, **more)
    return found[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize("window", [None, 4])
def test_a_left_padded_batch_generates_the_same(window):
    theirs, ours = build_llama(window=window)
    ids = torch.tensor([[PAD] * (7 - len(x)) + x for x in PROMPTS])
    mask = ids != PAD
    expected = generate_theirs(theirs, ids, attention_mask=mask.long())
    assert generate(ours, ids, 20, make_cache(ours, 26, 3), mask=mask) == expected


@pytest.mark.parametrize("window", [None, 4])
def test_keys_and_logits_of_every_pass_are_the_same(window):
    """Their cache of a window has one key less: the new query brings its own."""
    past, (_, values) = compare_passes(*build_llama(window=window))
    kept = 14 if window is None else window - 1
    assert past.values.shape[2] == kept
    assert measure_difference(values[-1, :, :, -kept:], past.values) < LIMIT


def test_continuous_batching_generates_the_same():
    theirs, ours = build_llama()
    found = theirs.generate_batch(
        inputs=PROMPTS,
        generation_config=hf.GenerationConfig(
            max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=PAD
        ),
        # Without sizes it did not return within a minute on a CPU.
        continuous_batching_config=hf.ContinuousBatchingConfig(
            num_blocks=16, page_size=16, max_batch_tokens=64
        ),
    )
    expected = {tuple(x.prompt_ids): x.generated_tokens for x in found.values()}
    pool = PagePool(CacheSizes.of(ours.model), 12, 4)
    served = serve(ours, pool, [Request(x, 12) for x in PROMPTS], slots=2, chunk=4)
    assert [x.ids for x in served] == [expected[tuple(x)] for x in PROMPTS]


@pytest.mark.parametrize("name", ["draft", "lookup"])
def test_assisted_generation_generates_the_same(name):
    theirs, ours = build_llama()
    small, draft = build_llama(1, seed=1)
    settings, proposer = {
        "draft": ({"assistant_model": small}, DraftModel(draft, make_cache(draft))),
        "lookup": ({"prompt_lookup_num_tokens": 4}, PromptLookup()),
    }[name]
    ids = torch.tensor([PROMPTS[0]])
    found = speculate(ours, ids, 20, make_cache(ours), proposer).ids
    assert [found] == generate_theirs(theirs, ids, **settings)


def test_multi_head_latent_attention_is_that_of_deepseek():
    config = hf.DeepseekV3Config(
        **SIZES | {"initializer_range": 0.1},
        num_hidden_layers=2,
        num_key_value_heads=4,
        first_k_dense_replace=2,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=10,
    )
    theirs = build(hf.DeepseekV3ForCausalLM, config)
    ours = LatentDecoder(V, LatentSizes(64, 4, 16, 12, 8, 10), 80, 2)
    names = {
        "model.embed_tokens": "embed.table",
        "model.layers": "blocks",
        "self_attn.q_proj": "attention.query",
        "self_attn.kv_a_proj_with_mqa": "attention.down",
        "self_attn.kv_a_layernorm": "attention.norm",
        "self_attn.kv_b_proj": "attention.up",
        "self_attn.o_proj": "attention.output",
        "input_layernorm": "norms.0",
        "post_attention_layernorm": "norms.1",
        "mlp.gate_proj": "feed_forward.gate",
        "mlp.up_proj": "feed_forward.up",
        "mlp.down_proj": "feed_forward.down",
        "model.norm": "norm",
    }
    weights = {}
    for name, x in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        weights[name] = x
    del weights["lm_head.weight"]
    ours.load_state_dict(weights)
    past, (latents, rotary_keys) = compare_passes(theirs, CachedDecoder(ours.eval()))
    assert measure_difference(latents[-1], past.keys) < LIMIT
    assert past.values.shape == rotary_keys[-1].shape


@pytest.mark.parametrize("p", [0.01, 0.9, 1.0])
def test_filters_leave_the_same_symbols(p):
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, V, generator=rng, dtype=torch.float64)
    filters = (
        hf.TemperatureLogitsWarper(0.7),
        hf.TopKLogitsWarper(20),
        hf.TopPLogitsWarper(p),
        hf.MinPLogitsWarper(0.02),
    )
    theirs = hf.LogitsProcessorList(filters)
    ours = Sampling(0.7, top_k=20, top_p=p, min_p=0.02)
    expected = theirs(None, logits).softmax(-1)
    assert measure_difference(ours.probabilities(logits), expected) < 1e-12
