"""The real weights give what was recorded, and SmolLM2 also in transformers."""

from functools import cache

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook.models.pretrained import (
    NAMES,
    SIZES,
    load_smollm2,
    load_smollm2_tokenizer,
)
from attnbook.models.pretrained_whisper import load_whisper, load_whisper_tokenizer
from attnbook.positions.rotary import halves_permutation
from attnbook.records import read_record
from workshop.experiments.smollm2 import (
    LENGTH,
    SelectedAttention,
    cut_passage,
    list_variants,
    measure_selection,
    read_lines,
)
from workshop.experiments.speech import (
    HEARD_DIGITS,
    SEQUENCES,
    compute_loss,
    draw_heard,
    find_digit_tokens,
    measure_heads,
)

model, tokenizer = cache(load_smollm2), cache(load_smollm2_tokenizer)


@pytest.mark.parametrize("name", ["full", "window 64, 1 sink", "oracle top 8"])
def test_the_loss_with_selected_keys_is_the_one_recorded(name):
    results = read_record("smollm2_keys")["results"]
    row = next(x for x in results["variants"] if x["name"] == name)
    variant = next(x for x in list_variants() if x.name == name)
    selected = load_smollm2(SelectedAttention)
    ids = cut_passage(tokenizer(), read_lines(), 0, LENGTH)  # the first passage
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


@torch.no_grad()
def test_transformers_gives_the_same_logits_with_these_weights():
    ids = torch.tensor([tokenizer().encode("Attention is all you need, 1, 2, 3").ids])
    ours, theirs = model()(ids), build_theirs()(ids).logits
    apart = (ours - theirs).abs().max() / theirs.abs().max()
    assert apart < 1e-4


def test_the_heads_of_whisper_have_the_recorded_scores():
    results = read_record("whisper_digits")["results"]
    whisper, tokens = load_whisper(), load_whisper_tokenizer()
    heard = draw_heard(whisper, find_digit_tokens(tokens), 0)
    heads = measure_heads(whisper, heard)
    digits = SEQUENCES * HEARD_DIGITS
    for row in results["heads"]:
        place = row["layer"], row["head"]
        for name in ("inside", "previous"):
            # Weights that nearly tie may change places: one or two digits.
            found = float(heads[name][place])
            assert found == pytest.approx(row[name][0], abs=2.5 / digits)
    assert compute_loss(whisper, heard) == pytest.approx(results["loss"][0], abs=1e-3)
