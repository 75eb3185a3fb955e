#!/usr/bin/env bash
# transformers 5.24.0, decoding on a CPU: five things that happen without an error.
#
# 1. The cache of one prompt, given to `generate` with another, longer prompt: the
#    beginning of the new prompt has no influence.
# 2. `generate_batch` (continuous batching) ignores min_new_tokens.
# 3. Sampling with default settings keeps the 50 most probable tokens, although
#    `GenerationConfig().top_k` is None.
# 4. A prompt with padding on the right gets other tokens than alone.
# 5. Beyond the trained length with dynamic NTK scaling, cached decoding and a pass
#    over all tokens have different logits.
# Fails if one of them changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 transformers==5.24.0 accelerate
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from transformers import (
    ContinuousBatchingConfig,
    DynamicCache,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)


def build(**more):
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=None,
        bos_token_id=None,
    )
    return LlamaForCausalLM(LlamaConfig(**sizes, **more)).eval()


model = build()
draw = torch.Generator().manual_seed(1)


def draw_ids(count):
    return torch.randint(1, 97, (1, count), generator=draw)


def continue_(ids, **more):
    found = model.generate(ids, max_new_tokens=12, do_sample=False, **more)
    return found[0, ids.shape[1] :].tolist()


long, cache = draw_ids(30), DynamicCache(config=model.config)
continue_(draw_ids(7), cache=cache)  # 18 tokens are in the cache now
found = []
for first in (long[:, :18], draw_ids(18)):
    cache = DynamicCache(config=model.config)
    torch.manual_seed(0)
    continue_(torch.full((1, 7), 5), cache=cache)
    found.append(continue_(torch.cat([first, long[:, 18:]], 1), cache=cache))
print("1. the first 18 of 30 tokens matter:", found[0] != found[1])
assert found[0] == found[1] != continue_(long)

end = continue_(long)[0]
settings = dict(max_new_tokens=6, min_new_tokens=4, do_sample=False, eos_token_id=end)
batch = model.generate_batch(
    inputs=long.tolist(),
    generation_config=GenerationConfig(**settings, pad_token_id=0),
    continuous_batching_config=ContinuousBatchingConfig(
        num_blocks=16, page_size=16, max_batch_tokens=64
    ),
)
[served] = [x.generated_tokens for x in batch.values()]
alone = model.generate(long, **settings)[0, 30:].tolist()
print("2. new tokens, of at least 4:", len(served), "and", len(alone))
assert len(served) == 1 and len(alone) >= 4

torch.manual_seed(0)
drawn = model.generate(
    long.expand(4000, -1), max_new_tokens=1, do_sample=True, temperature=50.0
)[:, -1]
print("3. different tokens at a high temperature, of 97:", len(drawn.unique()))
assert GenerationConfig().top_k is None and len(drawn.unique()) == 50

short = draw_ids(3)
padded = torch.cat([short, torch.zeros(1, 4, dtype=torch.long)], 1)
both = torch.cat([padded, draw_ids(7)])
mask = (torch.arange(7) < torch.tensor([[3], [7]])).long()
found = model.generate(
    both, attention_mask=mask, max_new_tokens=12, do_sample=False
)[0, 7:].tolist()
print("4. right padding, as alone:", found == continue_(short))
assert found != continue_(short)

model = build(
    max_position_embeddings=16,
    rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
)
ids, steps, cache = draw_ids(30), [], DynamicCache(config=model.config)
with torch.no_grad():
    whole = model(ids).logits
    for i in range(30):
        steps.append(model(ids[:, i : i + 1], cache=cache).logits)
difference = (torch.cat(steps, 1) - whole).abs().amax((0, 2))
print("5. cached and whole logits differ by", round(difference.max().item(), 2))
assert difference.max() > 0.1
PYTHON
