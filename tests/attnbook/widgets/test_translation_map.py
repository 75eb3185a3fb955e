"""The map of a translation: what it takes, what it computes, how it is used."""

import json
from html import unescape

import pytest
import torch

from attnbook.diagnose import entropy
from attnbook.models.attention_maps import collect_maps
from attnbook.models.transformer import Size, transformer
from attnbook.widgets.translation_map import (
    START_LABEL,
    TranslationMap,
    list_decoder_inputs,
)
from canvas import read_pixel
from javascript import Module

L, H = 2, 3


def example(source="the cat sat", output="le chat dort end", **changes):
    """Maps of an untrained Transformer for these words."""
    source, output = source.split(), output.split()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = transformer(30, 30, Size(12, H, 17, L)).eval()
        ids = torch.randint(4, 30, (1, len(source) + len(output)))
    source_ids, read_status = ids.split([len(source), len(output)], dim=1)
    found = collect_maps(model, source_ids, torch.tensor([len(source)]), read_status)
    weights = {name: x[0] for name, x in found._asdict().items()}
    title = " ".join(source[:5])
    made = {"title": title, "source": source, "output": output}
    return made | weights | changes


def state(*examples, **traits):
    return TranslationMap(list(examples) or [example()], **traits).state()


def test_weights_are_rounded_to_three_digits():
    given = example()
    made = TranslationMap([given]).examples[0]
    for name in ("encoder", "decoder", "cross"):
        stored = torch.tensor(made[name], dtype=torch.float64)
        assert stored.shape == given[name].shape
        torch.testing.assert_close(stored, given[name].double(), atol=5.01e-4, rtol=0)


def test_the_last_output_word_is_no_decoder_input():
    assert list_decoder_inputs(["a", "b", "end"]) == [START_LABEL, "a", "b"]


def test_the_fallback_shows_the_numbers_without_javascript():
    given = example(source="<b> cat sat")
    made = TranslationMap([given], layer=1, head=2)
    text = made.fallback()
    cross = given["cross"][1, 2, 0]
    at = int(cross.argmax())
    word = ["&lt;b&gt;", "cat", "sat"][at]
    assert f"<td>le</td><td>{word}</td><td>{cross[at]:.2f}</td>" in text
    assert "layer 2, head 3" in text
    assert "<b>" not in text


def test_the_fallbacks_mean_is_the_mean():
    given = example()
    text = TranslationMap([given], head=-1).fallback()
    cross = given["cross"][0].mean(0)
    assert "layer 1, mean of heads" in text
    for row in cross:
        assert f"<td>{row.max():.2f}</td>" in text


def test_the_state_carries_what_the_page_needs():
    data, _ = TranslationMap([example()])._repr_mimebundle_()
    found = data["text/html"].split(">", 2)[2].partition("</script>")[0]
    assert {*json.loads(unescape(found))} == {"examples", "layer", "head"}


def ahead():
    weights = example()["decoder"].clone()
    weights[0, 1, 0, :2] = 0.5
    return {"decoder": weights}


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "the cat"}, "source must be a list of strings"),
        ({"source": []}, "0 queries and 0 keys"),
        ({"output": []}, "0 queries and 0 keys"),
        ({"source": ["the", "cat"]}, "3 rows of weights for 2 queries"),
        ({"cross": example()["cross"][:1]}, r"maps differ in .*'cross': \(1"),
        ({"cross": example()["cross"] * float("nan")}, "the weight nan"),
        ({"cross": example()["cross"] + 1}, "between 0 and 1"),
        ({"encoder": []}, r"0 layers with \[\] heads"),
        (ahead(), "step 0 gives 0.500 to words that it has not read"),
    ],
)
def test_inputs_of_unequal_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TranslationMap([example() | changes])


@pytest.mark.refusal
def test_a_missing_field_layer_or_head_is_refused():
    with pytest.raises(ValueError, match="0 examples given"):
        TranslationMap([])
    with pytest.raises(ValueError, match="lacks 'cross'"):
        TranslationMap([{k: v for k, v in example().items() if k != "cross"}])
    with pytest.raises(ValueError, match=r"layer is 2.*there are 2"):
        TranslationMap([example()], layer=2)
    with pytest.raises(ValueError, match="head is -2"):
        TranslationMap([example()], head=-2)


@pytest.fixture(scope="module")
def module():
    return Module("translation_map")


@pytest.mark.javascript
def test_means_and_rows_are_the_librarys(module):
    given = example()
    raw = {
        name: x.double().tolist() if torch.is_tensor(x) else x
        for name, x in given.items()
    }
    assert module.call("countLayersAndHeads", raw) == [L, H]
    for name in ("encoder", "decoder", "cross"):
        for layer in range(L):
            for head in range(-1, H):
                weights = given[name][layer].double()
                right = weights.mean(0) if head < 0 else weights[head]
                ours = module.call("selectWeights", raw, name, layer, head)
                torch.testing.assert_close(
                    torch.tensor(ours, dtype=torch.float64),
                    right,
                    atol=1e-6,
                    rtol=0,
                )


@pytest.mark.javascript
def test_spread_and_best_are_the_librarys(module):
    weights = example()["cross"].double().flatten(0, 2)
    weights = weights / weights.sum(-1, keepdim=True)
    ours = [module.call("entropy", row) for row in weights.tolist()]
    assert ours == pytest.approx(entropy(weights).tolist(), abs=1e-6)
    best = [module.call("findLargest", row) for row in weights.tolist()]
    assert best == weights.argmax(-1).tolist()


@pytest.mark.javascript
def test_a_step_is_described_in_words(module):
    assert module.call("listDecoderInputs", ["a", "b"]) == list_decoder_inputs(
        ["a", "b"]
    )
    rows = [[[[0.9, 0.1, 0], [0.25, 0.5, 0.25]]]]
    own = [[[[1, 0], [0.5, 0.5]]]]
    encoder = [[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]]
    made = state(
        {
            "title": "t",
            "source": ["i", "am", "here"],
            "output": ["je", "suis"],
            "cross": rows,
            "decoder": own,
            "encoder": encoder,
        }
    )["examples"][0]
    assert module.call("describeStep", made, 0, 0, 1) == (
        "Step 2 of 2, layer 1, head 1: reads “je”, generates “suis”. In the "
        "source it attends most to “am” (0.50, spread as over 2.8 words); "
        "in what it has read it attends most to “(beginning)” (0.50, spread "
        "as over 2.0 words)."
    )
    assert module.call("describeSourceWord", made, 0, -1, 2) == (
        "Encoder, layer 1, mean of heads: “here” attends most to “here” (1.00, "
        "spread as over 1.0 word)."
    )


@pytest.mark.javascript
def test_invalid_input_is_cleaned(module):
    for given in (None, 3, {}, {"source": "x", "output": {}, "cross": [[]]}):
        made = module.call("cleanExample", given)
        assert (made["source"], made["cross"]) == ([], [])
        assert module.call("countLayersAndHeads", made) == [0, 0]
    odd = {"source": ["a"], "output": ["b"], "cross": [[[["NaN"]]], "x"]}
    made = module.call("cleanExample", odd)
    assert made["cross"] == [[[[0]]]]
    assert module.call("countLayersAndHeads", made) == [0, 0]
    assert module.call("describeLargest", [0, 0], ["a", "b"]) == "attends to nothing"


def read_status(page):
    return page.inner_text("[role=status]")


def numbers(page, name):
    return page.locator(f".tm-{name} .tm-number").all_inner_texts()


@pytest.mark.browser
def test_steps_are_chosen_by_mouse_and_by_keyboard(shown):
    page = shown(state(), "translation_map")
    assert read_status(page).startswith("Step 1 of 4, layer 1, head 1: reads “(begin")
    assert numbers(page, "decoder") == ["1.00", "not yet", "not yet", "not yet"]
    page.click("text=Next")
    assert "reads “le”, generates “chat”" in read_status(page)
    page.click(".tm-words button >> nth=2")
    assert "generates “dort”" in read_status(page)
    page.keyboard.press("ArrowRight")
    assert "generates “end”" in read_status(page)
    assert page.evaluate("document.activeElement.innerText") == "end"
    assert page.is_disabled("text=Next")
    page.keyboard.press("Home")
    assert read_status(page).startswith("Step 1 of 4")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert read_status(page).startswith("Step 3 of 4")
    page.keyboard.press("ArrowDown")
    assert read_status(page).startswith("Step 3 of 4, layer 1, head 2")
    assert page.input_value("[id$=-head]") == "1"
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    assert "mean of heads" in read_status(page)


@pytest.mark.browser
def test_the_numbers_shown_are_the_weights(shown):
    made = state(head=1, layer=1)
    page = shown(made, "translation_map")
    page.click("text=Next")
    first = made["examples"][0]
    for name, row in (("cross", 1), ("encoder", 0)):
        weights = first[name][1][1][row]
        assert numbers(page, name) == [f"{x:.2f}" for x in weights]


@pytest.mark.browser
def test_a_source_word_shows_its_encoder_weights(shown):
    made = state()
    page = shown(made, "translation_map")
    page.click(".tm-words button:has-text('cat')")
    assert read_status(page).startswith("Encoder, layer 1, head 1: “cat” attends most")
    page.keyboard.press("ArrowRight")
    assert "“sat” attends" in read_status(page)
    weights = made["examples"][0]["encoder"][0][0][2]
    assert numbers(page, "encoder") == [f"{x:.2f}" for x in weights]
    pressed = page.locator(".tm-words [aria-pressed=true]").all_inner_texts()
    assert pressed == ["le", "sat"]


@pytest.mark.browser
def test_layer_head_and_example_are_chosen_by_select(shown):
    page = shown(state(example(), example("a b", "x end")), "translation_map")
    page.select_option("[id$=-layer]", "1")
    page.select_option("[id$=-head]", "-1")
    assert "layer 2, mean of heads" in read_status(page)
    page.select_option("[id$=-example]", "1")
    assert read_status(page).startswith("Step 1 of 2")
    assert page.locator(".tm-cross .tm-key li").count() == 2


@pytest.mark.browser
def test_a_map_reacts_to_clicks_and_to_the_theme(shown):
    page = shown(state(), "translation_map")
    box = page.locator(".tm-cross .tm-map").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + 0.9 * box["height"])
    assert read_status(page).startswith("Step 4 of 4")
    light = read_pixel(page, ".tm-map canvas")
    assert light[2] > light[0]
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark = read_pixel(page, ".tm-map canvas", unlike=light)
    assert dark[0] != light[0]


def flat(source, output):
    """Weights as if every row looked at the first word it may."""

    def first(rows, columns):
        weights = torch.zeros(1, 1, rows, columns)
        weights[..., 0] = 1
        return weights

    S, T = len(source), len(output)
    return {
        "title": "many words",
        "source": source,
        "output": output,
        "encoder": first(S, S),
        "decoder": first(T, T),
        "cross": first(T, S),
    }


@pytest.mark.browser
@pytest.mark.parametrize("counts", [(1, 1), (512, 3), (3, 512)])
def test_one_word_and_512_fit_a_screen(shown, counts):
    source, output = ([f"word{i}" for i in range(n)] for n in counts)
    page = shown(state(flat(source, output)), "translation_map")
    page.click(f".tm-words button >> nth={counts[1] - 1}")
    assert f"Step {counts[1]} of {counts[1]}" in read_status(page)
    page.keyboard.press("Home")
    assert f"Step 1 of {counts[1]}" in read_status(page)
    over = "document.documentElement.scrollWidth - window.innerWidth"
    for width in (320, 900):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(over) <= 0
    assert page.wrong == []


@pytest.mark.browser
def test_words_are_text(shown):
    bad = ['<img src=x onerror="document.title=1">', "</script>", "بيت", "🙂"]
    page = shown(state(flat(bad, bad)), "translation_map")
    page.click("text=Next")
    assert page.locator(".tm img").count() == 0
    assert page.title() == "page"
    assert read_status(page).count("\u2068") == read_status(page).count("\u2069")
    page.click("text=Next")
    page.click("text=Next")
    assert "“\u2068بيت\u2069”, generates “🙂”" in read_status(page)


@pytest.mark.browser
@pytest.mark.parametrize("number", ["NaN", "Infinity", -1, 1e308])
def test_invalid_numbers_become_zeros_or_ones(shown, number):
    made = state()
    made["examples"][0]["cross"][0][0][0][0] = number
    page = shown(made, "translation_map")
    assert numbers(page, "cross")[0] in ("0.00", "1.00")
    assert page.wrong == []
