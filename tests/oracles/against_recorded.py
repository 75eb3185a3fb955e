"""The real weights give what was recorded, and SmolLM2 also in transformers.

The recorded logits are rounded to four digits; thirty blocks in single
precision, in another order of sums, move a logit by less than 10⁻².
"""

from functools import cache

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook.models.modern_decoder import decode_greedily
from attnbook.models.pretrained import NAMES, SIZES
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from attnbook.models.whisper_tiny import load_whisper, load_whisper_tokenizer
from attnbook.positions.rotary import halves_permutation
from attnbook.records import read_record
from workshop.experiments.smollm2 import (
    PREDICTED,
    PREDICTED_LENGTH,
    compute_second_half_loss,
    cut_passage,
    read_help_text,
    read_lines,
    split_into_passages,
)
from workshop.experiments.smollm2_keys import (
    LENGTH,
    SelectedAttention,
    list_variants,
    measure_selection,
)
from workshop.experiments.whisper import (
    compute_loss,
    draw_heard,
    find_digit_tokens,
    measure_heads,
)

RESULTS = read_record("smollm2_predictions")["results"]
LIMIT = 1e-2
each_prompt = pytest.mark.parametrize(
    "prompt", RESULTS["prompts"], ids=lambda prompt: repr(prompt["text"])
)
model, tokenizer = cache(load_smollm2), cache(load_smollm2_tokenizer)


@each_prompt
@torch.no_grad()
def test_the_logits_after_a_prompt_are_those_recorded(prompt):
    assert tokenizer().encode(prompt["text"]).ids == prompt["ids"]
    logits = model()(torch.tensor([prompt["ids"]]))[0, -1]
    found = logits[prompt["best"]].double()
    wanted = torch.tensor(prompt["logits"], dtype=torch.double)
    torch.testing.assert_close(found, wanted, atol=LIMIT, rtol=0)
    assert logits.max() < wanted[0] + LIMIT


def test_the_continuation_is_the_one_recorded():
    written = RESULTS["continuation"]
    first = RESULTS["prompts"][-1]["ids"]
    count = len(written["ids"]) - len(first)
    found = decode_greedily(model(), torch.tensor([first]), count)[0]
    assert found.tolist() == written["ids"]
    assert tokenizer().decode(found[len(first) :].tolist()) == written["text"]


def test_the_loss_of_a_passage_is_the_one_recorded():
    ids = tokenizer().encode(read_help_text()).ids
    passages = split_into_passages(ids, PREDICTED, PREDICTED_LENGTH)
    found = compute_second_half_loss(model(), passages[0])
    assert found == pytest.approx(RESULTS["passages"][0], abs=1e-3)


@pytest.mark.parametrize("name", ["full", "window 64, 1 sink", "oracle top 8"])
def test_the_loss_with_selected_keys_is_the_one_recorded(name):
    results = read_record("smollm2_keys")["results"]
    row = next(x for x in results["variants"] if x["name"] == name)
    variant = next(x for x in list_variants() if x.name == name)
    selected = load_smollm2(SelectedAttention)
    ids = cut_passage(tokenizer(), read_lines(), results["first_lines"][0], LENGTH)
    found = measure_selection(selected, [ids], variant.select)
    # Weights that nearly tie may change places: another key, another loss.
    assert found["losses"][0] == pytest.approx(row["losses"][0], abs=5e-3)


def test_a_text_comes_back_from_its_symbols():
    text = "Ça coûte 1234 €.\n\n  def f(x):\treturn x  # don't"
    assert tokenizer().decode(tokenizer().encode(text).ids) == text


@cache
def build_theirs():
    """Return transformers' model with the same weights."""
    config = model().config
    sizes = {theirs: getattr(config, ours) for ours, theirs in SIZES.items()}
    state = {}
    for name, x in model().state_dict().items():
        block = name.split(".")[1]
        key = name.replace(f"blocks.{block}.", "blocks.{}.")
        if ".query." in name or ".key." in name:
            rows = x.unflatten(0, (-1, config.width // config.heads))
            x = rows[:, halves_permutation(rows.shape[1])].flatten(0, 1)
        state[NAMES[key].format(block)] = x
    rotary = {"rope_theta": config.base, "rope_type": "default"}
    with torch.device("meta"):
        theirs = LlamaForCausalLM(
            LlamaConfig(
                **sizes,
                num_key_value_heads=config.groups,
                rope_parameters=rotary,
                tie_word_embeddings=True,
            )
        )
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    theirs.load_state_dict(state, assign=True)
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)
    return theirs.eval()


@each_prompt
@torch.no_grad()
def test_transformers_gives_the_same_logits_with_these_weights(prompt):
    ids = torch.tensor([prompt["ids"]])
    ours, theirs = model()(ids), build_theirs()(ids).logits
    apart = (ours - theirs).abs().max() / theirs.abs().max()
    assert apart < 1e-4


def test_the_heads_of_whisper_have_the_recorded_scores():
    results = read_record("whisper_digits")["results"]
    whisper, tokens = load_whisper(), load_whisper_tokenizer()
    heard = draw_heard(whisper, find_digit_tokens(tokens), 0)
    heads = measure_heads(whisper, heard)["heads"]
    digits = results["sequences"] * results["digits"]
    for row in results["heads"]:
        place = row["layer"], row["head"]
        for name in ("inside", "previous"):
            # Weights that nearly tie may change places: one or two digits.
            found = float(heads[name][place])
            assert found == pytest.approx(row[name][0], abs=2.5 / digits)
        found = float(heads["entropy"][place])
        assert found == pytest.approx(row["entropy"][0], abs=1e-2)
    assert compute_loss(whisper, heard) == pytest.approx(results["loss"][0], abs=1e-3)
