"""Generation equals that of transformers: caches, batches, latents, speculation.

In single precision, as in against_transformers.py. The greedy symbols of these models
differ by far more in their logits than the libraries do.
"""

import pytest
import torch
from transformers import (
    ContinuousBatchingConfig,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DynamicCache,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    MistralConfig,
    MistralForCausalLM,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from attnbook.decoding.caches import (
    CacheSizes,
    KVCache,
    LatentCache,
    PagedCache,
    PagePool,
    WindowCache,
)
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
        theirs = build(LlamaForCausalLM, LlamaConfig(**given), seed)
    else:
        config = MistralConfig(**given, sliding_window=window)
        theirs = build(MistralForCausalLM, config, seed)
    ours = ModernDecoder(
        read_llama_config(theirs.config.to_dict() | {"model_type": "llama"})
    )
    weights = convert_llama_weights(theirs.state_dict(), ours.config)
    ours.load_state_dict(weights)
    return theirs, CachedDecoder(ours.eval(), window)


def pad_left():
    T = max(map(len, PROMPTS))
    ids = torch.tensor([[PAD] * (T - len(x)) + x for x in PROMPTS])
    return ids, torch.tensor([[i >= T - len(x) for i in range(T)] for x in PROMPTS])


def generate_theirs(model, ids, count=20, **more):
    found = model.generate(ids, max_new_tokens=count, do_sample=False, **more)
    return found[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize("window", [None, 4])
def test_a_left_padded_batch_generates_the_same(window):
    theirs, ours = build_llama(window=window)
    ids, mask = pad_left()
    expected = generate_theirs(theirs, ids, attention_mask=mask.long())
    sizes = CacheSizes.of(ours.model)
    caches = [KVCache(sizes, 3, 26), PagedCache(PagePool(sizes, 30, 4), 3)]
    if window is not None:
        caches.append(WindowCache(sizes, 3, window))
    for cache in caches:
        assert generate(ours, ids, 20, cache, mask=mask) == expected


@pytest.mark.parametrize("window", [None, 4])
def test_keys_and_logits_of_every_pass_are_the_same(window):
    """Their cache of a window has one key less: the new query brings its own."""
    theirs, ours = build_llama(window=window)
    ids, past = torch.tensor([PROMPTS[0] * 2]), DynamicCache(config=theirs.config)
    cache = KVCache(CacheSizes.of(ours.model), 1, 14)
    for piece in ids.split([6, 1, 1, 4, 1, 1], dim=1):
        with torch.no_grad():
            expected = theirs(piece, past_key_values=past).logits
        assert measure_difference(ours(piece, cache), expected) < LIMIT
    kept = 14 if window is None else window - 1
    values = past.layers[-1].values
    assert values.shape[2] == kept
    assert measure_difference(cache.tensors[1][-1, :, :, -kept:], values) < LIMIT


def test_continuous_batching_generates_the_same():
    theirs, ours = build_llama()
    found = theirs.generate_batch(
        inputs=PROMPTS,
        generation_config=GenerationConfig(
            max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=PAD
        ),
        # Without sizes it did not return within a minute on a CPU.
        continuous_batching_config=ContinuousBatchingConfig(
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
    ids = torch.tensor([PROMPTS[0]])
    sizes = CacheSizes.of(draft.model)
    if name == "draft":
        expected = generate_theirs(theirs, ids, assistant_model=small)
        proposer = DraftModel(draft, KVCache(sizes, 1, 40))
    else:
        expected = generate_theirs(theirs, ids, prompt_lookup_num_tokens=4)
        proposer = PromptLookup()
    cache = KVCache(CacheSizes.of(ours.model), 1, 40)
    assert [speculate(ours, ids, 20, cache, proposer).ids] == expected


def test_multi_head_latent_attention_is_that_of_deepseek():
    config = DeepseekV3Config(
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
    theirs = build(DeepseekV3ForCausalLM, config)
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
    ids, past = torch.tensor([PROMPTS[0] * 2]), DynamicCache(config=config)
    decoder = CachedDecoder(ours.eval())
    cache = LatentCache(CacheSizes.of(ours), 1, 14)
    for piece in ids.split([6, 1, 1, 4, 1, 1], dim=1):
        with torch.no_grad():
            expected = theirs(piece, past_key_values=past).logits
        assert measure_difference(decoder(piece, cache), expected) < LIMIT
    latent = past.layers[-1].keys
    assert measure_difference(cache.tensors[0][-1], latent) < LIMIT
    assert latent.numel() + past.layers[-1].values.numel() == 14 * (16 + 8)


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 1.0])
def test_filters_leave_the_same_symbols(p):
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, V, generator=rng, dtype=torch.float64)
    theirs = LogitsProcessorList(
        [
            TemperatureLogitsWarper(0.7),
            TopKLogitsWarper(20),
            TopPLogitsWarper(p),
            MinPLogitsWarper(0.02),
        ]
    )
    ours = Sampling(0.7, top_k=20, top_p=p, min_p=0.02)
    expected = theirs(None, logits).softmax(-1)
    assert measure_difference(ours.probabilities(logits), expected) < 1e-12
