"""The real weights of SmolLM2 and Whisper give what was recorded."""

from functools import cache

import pytest

from attnbook.models.pretrained import load_smollm2, load_smollm2_tokenizer
from attnbook.models.pretrained_whisper import load_whisper, load_whisper_tokenizer
from attnbook.records import read_record
from workshop.experiments.smollm2 import (
    LENGTH,
    PASSAGES,
    SelectedAttention,
    cut_passages,
    list_variants,
    measure_selection,
)
from workshop.experiments.speech import (
    HEARD_DIGITS,
    SEQUENCES,
    compute_loss,
    draw_heard,
    find_digit_tokens,
    measure_heads,
)

tokenizer = cache(load_smollm2_tokenizer)


@pytest.mark.parametrize("name", ["full", "window 64, 1 sink", "oracle top 8"])
def test_the_loss_with_selected_keys_is_the_one_recorded(name):
    results = read_record("smollm2_keys")["results"]
    row = next(x for x in results["variants"] if x["name"] == name)
    selected = load_smollm2(SelectedAttention)
    ids = cut_passages(tokenizer(), PASSAGES, LENGTH)[0]
    found = measure_selection(selected, [ids], list_variants()[name])
    # Weights that nearly tie may change places: another key, another loss.
    assert found["losses"][0] == pytest.approx(row["losses"][0], abs=5e-3)


def test_a_text_comes_back_from_its_symbols():
    text = "Ça coûte 1234 €.\n\n  def f(x):\treturn x  # don't"
    assert tokenizer().decode(tokenizer().encode(text).ids) == text


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
