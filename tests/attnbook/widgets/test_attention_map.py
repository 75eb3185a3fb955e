"""The attention map: what it takes, what it computes, how it is used."""

import json
import math
from html import unescape

import pytest
import torch

from attnbook.data.minilm import load_maps
from attnbook.diagnose import entropy
from attnbook.widgets.attention_map import AttentionMap
from canvas import read_pixel
from javascript import Module

WORDS = ["the", "cat", "sat"]


def example(**changes):
    weights = torch.tensor(
        [
            [[[1.0, 0, 0], [0.25, 0.5, 0.25], [0, 0, 1]]] * 2,
            [[[0.2, 0.3, 0.5], [0, 1, 0], [0.1, 0.1, 0.8]]] * 2,
        ]
    )
    made = {"title": "three words", "query": WORDS, "weights": weights}
    return made | changes


CROSS = example(
    query=["je", "suis"],
    key=["i", "am", "here"],
    weights=[[[[0.9, 0.1, 0], [0, 0.7, 0.3]]]],
)


def test_weights_are_rounded_to_three_digits():
    made = AttentionMap([example(weights=example()["weights"] / 3)])
    assert made.examples[0]["weights"][0][0][0] == [0.333, 0.0, 0.0]
    assert made.examples[0]["key"] == WORDS


def test_the_fallback_shows_the_numbers_without_javascript():
    made = AttentionMap([example(query=["<b>", "cat", "sat"])], layer=1)
    text = made.fallback()
    assert "<th>&lt;b&gt;</th><td>0.20</td><td>0.30</td><td>0.50</td>" in text
    assert "layer 2, head 1" in text


def test_the_state_carries_what_the_page_needs():
    data, _ = AttentionMap([CROSS], heads="all")._repr_mimebundle_()
    state = data["text/html"].split(">", 2)[2].partition("</script>")[0]
    state = json.loads(unescape(state))
    assert {*state} == {"examples", "layer", "head", "heads"}
    assert state["examples"][0]["key"] == ["i", "am", "here"]


def test_the_recorded_maps_are_small():
    data, _ = AttentionMap(load_maps()[:3])._repr_mimebundle_()
    assert len(data["text/html"].encode()) < 200_000


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": "the cat"}, "must be a list of strings"),
        ({"query": []}, "0 queries and 0 keys"),
        ({"key": ["a", "b"]}, "row 0 has 3 weights for 2 keys"),
        (
            {"query": ["a", "b"], "key": WORDS},
            "3 rows of weights for 2 queries",
        ),
        ({"weights": []}, r"0 layers with \[\] heads"),
        ({"weights": [[[[1, 0, 0]] * 3], []]}, r"2 layers with \[0, 1\] heads"),
        ({"weights": [[[[2, 0, 0]] * 3]]}, "key 0, 'the', the weight 2"),
    ],
)
def test_inputs_of_unequal_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        AttentionMap([example(**changes)])


@pytest.mark.refusal
def test_a_missing_field_layer_or_head_is_refused():
    with pytest.raises(ValueError, match="0 examples given"):
        AttentionMap([])
    with pytest.raises(ValueError, match=r"layer is 2.*there are 2"):
        AttentionMap([example()], layer=2)
    with pytest.raises(ValueError, match="head is -1"):
        AttentionMap([example()], head=-1)
    with pytest.raises(ValueError, match="'one' or 'all', not 'some'"):
        AttentionMap([example()], heads="some")


@pytest.fixture(scope="module")
def module():
    return Module("attention_map")


@pytest.mark.javascript
def test_entropy_is_the_formula(module):
    seed = torch.Generator().manual_seed(0)
    for n in (1, 2, 7):
        row = torch.rand(n, generator=seed, dtype=torch.float64).softmax(0)
        expected = -(row * row.log()).sum().item()
        assert module.call("entropy", row.tolist()) == pytest.approx(expected)
    assert module.call("entropy", [0, 0]) == 0
    even = module.call("entropy", [0.25] * 4)
    assert math.exp(even) == pytest.approx(4)


def random_rows(count=60):
    """Yield rows of weights at random: sharp, flat, one word, zeros inside."""
    rng = torch.Generator().manual_seed(1)
    for i in range(count):
        logits = torch.randn(1 + i % 17, generator=rng, dtype=torch.float64)
        row = (logits * 10 ** (i % 5 - 2)).softmax(0)
        if i % 3 == 0 and len(row) > 2:
            row[torch.randperm(len(row), generator=rng)[:2]] = 0
            row = row / row.sum()
        yield row
    yield torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)


@pytest.mark.javascript
def test_entropy_and_largest_weight_equal_the_librarys_on_random_rows(module):
    for row in random_rows():
        ours = module.call("entropy", row.tolist())
        assert ours == pytest.approx(entropy(row).item(), abs=1e-6)
        assert module.call("findLargest", row.tolist()) == row.argmax().item()


@pytest.mark.javascript
def test_the_description_names_the_largest_weight(module):
    made = AttentionMap([CROSS]).examples[0]
    assert module.call("describeRow", made, 0, 0, 1) == (
        "Layer 1, head 1: “suis” attends most to “am” (0.70), spread as over 1.8 words"
    )


@pytest.mark.javascript
def test_entropy_is_the_librarys_on_real_rows(module):
    made = AttentionMap(load_maps()[:1]).examples[0]
    rows = [row for head in made["weights"][2] for row in head]
    weights = torch.tensor(rows, dtype=torch.float64)
    expected = entropy(weights / weights.sum(-1, keepdim=True))
    ours = [module.call("entropy", row) for row in rows]
    assert ours == pytest.approx(expected.tolist(), abs=1e-12)
    best = [module.call("findLargest", row) for row in rows]
    assert best == weights.argmax(-1).tolist()


@pytest.mark.javascript
def test_the_export_is_the_plain_array(module):
    made = AttentionMap(load_maps()[:1]).examples[0]
    text = module.call("exportWeights", made)
    assert json.loads(text) == made["weights"]
    assert torch.tensor(json.loads(text)).shape == (6, 12, 9, 9)
    assert module.call("readShape", made) == [6, 12, 9, 9]


@pytest.mark.javascript
def test_invalid_input_is_cleaned(module):
    assert module.call("cleanExample", None)["weights"] == []
    odd = {"query": ["a"], "weights": [[[["x"]]], []]}
    assert module.call("cleanExample", odd)["weights"] == [[[[0]]]]
    assert module.call("clampIndex", "x", 3) == 0
    assert module.call("clampIndex", 9, 3) == 2


def state(**changes):
    made = AttentionMap([example(), CROSS], **changes)
    return made.state()


def read_status(page):
    return page.inner_text("[role=status]")


@pytest.mark.browser
def test_words_are_chosen_by_mouse_and_by_keyboard(shown):
    page = shown(state(), "attention_map")
    page.click(".am-query button >> nth=1")
    assert "“cat” attends most to “cat” (0.50)" in read_status(page)
    page.keyboard.press("ArrowRight")
    assert "“sat” attends most to “sat” (1.00)" in read_status(page)
    assert page.evaluate("document.activeElement.innerText") == "sat"
    page.keyboard.press("Home")
    assert "“the”" in read_status(page)
    page.keyboard.press("ArrowDown")
    assert read_status(page).startswith("Layer 1, head 2")
    assert page.input_value("[id$=-head]") == "1"


@pytest.mark.browser
def test_layer_head_and_example_are_chosen_by_select(shown):
    page = shown(state(), "attention_map")
    page.select_option("[id$=-layer]", "1")
    page.select_option("[id$=-head]", "1")
    assert read_status(page).startswith("Layer 2, head 2: “the” attends most to “sat”")
    page.select_option("[id$=-example]", "1")
    assert read_status(page).startswith("Layer 1, head 1: “je” attends most to “i”")
    assert page.locator(".am-key li").count() == 3


@pytest.mark.browser
def test_all_heads_are_shown_side_by_side(shown):
    page = shown(state(heads="all"), "attention_map")
    assert page.locator(".am-grid button").count() == 2
    page.click(".am-grid button >> nth=1")
    assert read_status(page).startswith("Layer 1, head 2")
    pressed = page.get_attribute(".am-grid button >> nth=1", "aria-pressed")
    assert pressed == "true"
    page.keyboard.press("ArrowUp")
    assert read_status(page).startswith("Layer 1, head 1")
    for key, head in (("ArrowRight", 2), ("Home", 1), ("End", 2)):
        page.keyboard.press(key)
        assert read_status(page).startswith(f"Layer 1, head {head}: “the”")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "Head 2"
    assert page.locator(".am-grid [aria-pressed=true]").count() == 1


@pytest.mark.browser
def test_the_weights_can_be_read_as_json(shown):
    page = shown(state(), "attention_map")
    page.click("summary")
    # The text is written after the click, when the browser says that it opened.
    page.wait_for_function("document.querySelector('textarea').value")
    text = page.input_value("textarea")
    assert json.loads(text) == state()["examples"][0]["weights"]


@pytest.mark.browser
@pytest.mark.parametrize("may", [True, False])
def test_the_numbers_are_copied(shown, may):
    page = shown(state(), "attention_map")
    page.evaluate(
        """may => {
          const writeText = async (text) => {
            if (!may) throw new Error("not allowed here");
            window.copied = text;
          };
          const clipboard = { writeText };
          Object.defineProperty(navigator, "clipboard", { value: clipboard });
          document.addEventListener("copy", () => {
            window.copied = document.getSelection().toString();
          });
        }""",
        may,
    )
    page.click("text=Copy as JSON")
    page.wait_for_function("document.querySelector('.am-copied').textContent")
    shape = " \u00d7 ".join("2233")
    assert page.inner_text(".am-copied") == f"Copied: {shape} numbers"
    text = page.evaluate("window.copied")
    assert json.loads(text) == state()["examples"][0]["weights"]
    assert page.wrong == []


@pytest.mark.browser
def test_the_maps_words_are_at_its_rows_and_columns(shown):
    page = shown(state(), "attention_map")
    page.select_option("[id$=-example]", "1")
    box = page.locator(".am-map").bounding_box()
    for axis, words, start, size in (
        ("side", ["je", "suis"], "y", "height"),
        ("above", ["i", "am", "here"], "x", "width"),
    ):
        names = page.locator(f".am-{axis} bdi")
        assert names.all_inner_texts() == words
        for i in range(len(words)):
            found = names.nth(i).bounding_box()
            middle = found[start] + found[size] / 2 - box[start]
            assert abs(middle - (i + 0.5) * box[size] / len(words)) < 3
    assert page.inner_text(".am-now") == "je"


@pytest.mark.browser
def test_a_map_of_a_hundred_words_has_no_labels(shown):
    many = [f"w{i}" for i in range(100)]
    weights = torch.full((1, 1, 100, 100), 0.01)
    made = AttentionMap([example(query=many, weights=weights)]).state()
    page = shown(made, "attention_map")
    assert page.locator(".am-plot bdi").count() == 0
    page.keyboard.press("Tab")
    page.click(".am-query button >> nth=99")
    assert "spread as over 100.0 words" in read_status(page)


@pytest.mark.browser
def test_the_map_follows_the_theme(shown):
    page = shown(state(), "attention_map")
    light = read_pixel(page, ".am-map canvas")
    assert light[2] > light[0]
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark = read_pixel(page, ".am-map canvas", unlike=light)
    assert dark[0] != light[0]


@pytest.mark.browser
def test_words_are_text(shown):
    bad = '<img src=x onerror="document.title=1">'
    made = AttentionMap([example(query=[bad, "</script>", "بيت"])]).state()
    page = shown(made, "attention_map")
    assert page.locator(".am img").count() == 0
    assert page.title() == "page"
