"""Each widget by mouse and by keyboard: what it shows is what Python computes."""

import json

import pytest

from attnbook.data.recorded_maps import load_head_maps
from attnbook.widgets.cache_stepper import CacheStepper
from attnbook.widgets.cost_calculator import CostCalculator
from attnbook.widgets.head_explorer import SCORES, HeadExplorer
from attnbook.widgets.mask_builder import MaskBuilder
from attnbook.widgets.pattern_explorer import PRESETS, PatternExplorer
from attnbook.widgets.position_explorer import PositionExplorer
from attnbook.widgets.soft_lookup import SoftLookup
from attnbook.widgets.tile_stepper import TileStepper
from keyboard import drag_by_touch
from widget_examples import (
    make_alignment_player,
    make_attention_map,
    make_pattern_explorer,
    make_picture_and_sound,
    make_translation_map,
)

pytestmark = pytest.mark.browser

FOCUSED = "document.activeElement.innerText"
FOCUSED_LABEL = "document.activeElement.getAttribute('aria-label')"


def read_status(page):
    return page.locator("[role=status]").first.inner_text()


def read_statuses(page):
    return page.locator("[role=status]").all_inner_texts()


def read_rows(page, rows):
    return [row.locator("td").all_inner_texts() for row in page.locator(rows).all()]


SENTENCE = {
    "title": "I am here",
    "source": ["i", "am", "here"],
    "reference": ["je", "suis", "ici"],
    "with": {
        "output": ["je", "suis", "ici"],
        "weights": [[0.9, 0.1, 0], [0.1, 0.83, 0.07], [0, 0.2, 0.8], [0, 0, 1]],
    },
    "without": {"output": ["je", "suis", "là"]},
}
OTHER = make_alignment_player(["c", "a", "t"], ["K", "AE", "T"]).state()["examples"][0]


def test_the_alignment_player_by_keyboard(shown):
    page = shown({"examples": [SENTENCE, OTHER]}, "alignment_player")
    page.focus(".ap-output button")
    page.keyboard.press("ArrowRight")
    assert read_status(page) == "output 2 of 3, “suis”, attends most to “am” (0.83)"
    assert page.evaluate(FOCUSED) == "suis"
    page.keyboard.press("Control+ArrowRight")  # the browser's own
    page.keyboard.press("End")
    assert read_status(page) == "the end, attends most to “here” (1.00)"
    page.keyboard.press("Home")
    page.focus("[title=Next]")
    for _ in range(5):
        page.keyboard.press("Enter")
    assert read_status(page).startswith("the end")
    assert page.evaluate("document.activeElement.title") == "Next"


def test_the_alignment_player_by_mouse(shown):
    page = shown({"examples": [SENTENCE, OTHER]}, "alignment_player")
    box = page.locator(".ap-map").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] * 0.4)
    assert read_status(page).startswith("output 2 of 3")
    page.click("[role=switch]")
    assert page.inner_text(".ap-wrong").split() == ["là✗", "differs"]
    assert "there are no weights" in read_status(page)
    assert not page.is_visible(".ap-map")
    page.click("[role=switch]")
    page.select_option("select", "1")
    page.click("[title=Play]")
    page.wait_for_selector("[title=Play]")
    assert read_status(page).startswith("output 3 of 3, “T”")


def test_the_attention_map(shown):
    state = make_attention_map(["the", "cat", "sat"]).state()
    (example,) = state["examples"]
    example["weights"] = [
        [[[1, 0, 0], [0.25, 0.5, 0.25], [0, 0, 1]]] * 2,
        [[[0.2, 0.3, 0.5], [0, 1, 0], [0.1, 0.1, 0.8]]] * 2,
    ]
    page = shown(state, "attention_map")
    page.click(".am-query button >> nth=1")
    assert "“cat” attends most to “cat” (0.50)" in read_status(page)
    page.keyboard.press("ArrowRight")
    assert "“sat” attends most to “sat” (1.00)" in read_status(page)
    assert page.evaluate(FOCUSED) == "sat"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    assert read_status(page).startswith("Layer 1, head 2: “the”")
    page.select_option("[id$=-layer]", "1")
    assert read_status(page).startswith("Layer 2, head 2: “the” attends most to “sat”")
    page.click("summary")
    page.wait_for_function("document.querySelector('textarea').value")
    assert json.loads(page.input_value("textarea")) == example["weights"]


PIXEL = """() => {
  const pen = document.querySelector(".am-map canvas").getContext("2d");
  return `${pen.getImageData(3, 3, 1, 1).data}`;
}"""


def test_a_map_is_painted_again_when_the_theme_changes(shown):
    page = shown(make_attention_map(["the", "cat"]).state(), "attention_map")
    light = page.wait_for_function(PIXEL).json_value()
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"(light) => ({PIXEL})() !== light", arg=light)
    assert page.evaluate(PIXEL) != light


def test_the_translation_map(shown):
    state = make_translation_map(["the", "cat"], ["le", "chat", "end"]).state()
    page = shown(state, "translation_map")
    assert read_status(page).startswith("Step 1 of 3, layer 1, head 1: reads “(begin")
    page.click("text=Next")
    assert "reads “le”, generates “chat”" in read_status(page)
    page.focus(".tm-words button >> nth=1")
    page.keyboard.press("ArrowRight")
    assert "generates “end”" in read_status(page)
    assert page.is_disabled("text=Next")
    page.click(".tm-words button:has-text('cat')")
    assert read_status(page).startswith("Encoder, layer 1, head 1: “cat” attends most")
    numbers = page.locator(".tm-encoder .tm-number").all_inner_texts()
    weights = state["examples"][0]["encoder"][0][0][1]
    assert numbers == [f"{x:.2f}" for x in weights]
    box = page.locator(".tm-cross .tm-map").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + 0.1 * box["height"])
    assert read_status(page).startswith("Step 1 of 3")


def test_the_cost_calculator(shown):
    def rows():
        return read_rows(page, ".cc-rows tbody tr")

    def expect(**given):
        return [[*row[1:]] for row in CostCalculator(**given).rows()]

    page = shown(CostCalculator().state(), "cost_calculator")
    assert rows() == expect()
    page.get_by_label("Length n").focus()
    page.keyboard.press("ArrowLeft")
    assert rows() == expect(n=16384)
    page.get_by_label("Device").select_option("T4")
    page.get_by_label("Phase").select_option("prefill")
    page.get_by_label("Length n").focus()
    page.keyboard.press("End")
    assert "than the 16.0 GB there are" in read_status(page)
    page.get_by_text("Start again").click()
    page.get_by_label("Model").select_option("Llama 3 8B")
    page.get_by_label("Device").select_option("H200 SXM")
    page.get_by_label("Phase").select_option("train")
    page.get_by_label("Numbers").select_option("4")
    chosen = {"model": "Llama 3 8B", "device": "H200 SXM", "phase": "train"}
    assert rows() == expect(**chosen, itemsize=4)


@pytest.fixture(scope="module")
def explorer():
    return HeadExplorer(load_head_maps(), sentence=1)


def test_the_numbers_of_the_head_explorer(shown, explorer):
    page = shown(explorer.state(), "head_explorer")
    keys = page.get_by_role("list", name="Keys of the query").locator("span")
    [one] = [
        x["maps"][1]
        for x in explorer.heads
        if (x["layer"], x["head"]) == (explorer.layer, explorer.head)
    ]
    weights = one["hundredths"][-1]
    products = [x * norm for x, norm in zip(weights, one["norms"], strict=True)]
    for measure, row in ("weight", weights), ("norm", products):
        page.get_by_label("Map", exact=True).select_option(measure)
        numbers = [float(x) for x in keys.all_inner_texts()]
        wanted = [x / sum(row) for x in row]
        assert numbers == pytest.approx(wanted, abs=0.00501)
    for score in SCORES:
        page.get_by_label("Color", exact=True).select_option(score)
        cell = page.get_by_role("gridcell", name="Layer 1, head 4: ")
        label = cell.get_attribute("aria-label").replace("\u2212", "-")
        number = label.partition(": ")[2].partition(",")[0]
        wanted = explorer.read_scores(score)[1, 4]
        assert float(number) == pytest.approx(float(wanted), abs=1e-6)


def test_the_head_explorer_by_keyboard_and_mouse(shown, explorer):
    page = shown(explorer.state(), "head_explorer")
    page.get_by_role("gridcell", selected=True).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED_LABEL).startswith("Layer 1, head ")
    assert read_status(page).startswith("Layer 1, head ")
    page.get_by_role("gridcell", name="Layer 0, head 0: ").click()
    assert page.get_by_text("was not recorded").is_visible()
    page.get_by_label("Head", exact=True).select_option("0")
    first = explorer.heads[0]
    place = f"Layer {first['layer']}, head {first['head']}: "
    assert read_status(page).startswith(place)
    T = len(explorer.sentences[1]["tokens"])
    box = page.locator(".hx-map").bounding_box()
    at = {"x": box["width"] / 2, "y": 6.5 * box["height"] / T}
    page.locator(".hx-map").click(position=at)
    assert "at position 6 gives" in read_statuses(page)[1]


def read_mask(page):
    return ["".join(row) for row in read_rows(page, ".mb-table >> nth=0 >> tbody tr")]


def test_the_mask_builder(shown):
    page = shown(MaskBuilder().state(), "mask_builder")
    assert read_mask(page) == ["●●●····", "●●●●···", "●●●●●··", "●●●●●●·", "●●●●●●●"]
    page.click("text=Add a part")
    assert page.inner_text(".mb-formula") == "causal & padding & window"
    page.get_by_label("keys seen").fill("1")
    assert read_mask(page)[0] == "··●····"
    page.get_by_label("joined by").nth(1).select_option("or")
    page.get_by_label("not").nth(0).check()
    assert page.inner_text(".mb-formula") == "~causal & padding | window"
    page.get_by_label("Remove part 2, padding").click()
    assert page.inner_text(".mb-formula") == "~causal | window"
    page.click("text=Start again")
    page.get_by_label("Code for").select_option("mha")
    assert "~mask.expand(2, heads, 5, 7)" in page.inner_text("pre code")


def test_the_mask_builder_by_keyboard_and_touch(shown):
    page = shown(MaskBuilder().state(), "mask_builder")
    page.get_by_label("Keys S").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    assert "Queries 0 and 1 see no key" in read_statuses(page)[0]
    page.get_by_label("Query 0").focus()
    page.keyboard.press("End")
    assert read_statuses(page)[1].startswith("Query 4, at key 2, sees keys 0, 1 and 2;")
    drag_by_touch(page, page.get_by_label("Query 3").bounding_box(), 0)
    page.wait_for_selector("[aria-label='Query 3'][aria-pressed=true]")


def test_the_pattern_explorer(shown):
    tokens = ["<s>", *(f" word{t}" for t in range(1, 32))]
    state = make_pattern_explorer(tokens, window=4, sinks=0, layers=2).state()
    example = {k: state[k] for k in ("title", "tokens", "heads")}
    page = shown(state, "pattern_explorer")
    for window in (1, 4, 20):
        page.get_by_label("Window (keys)").fill(str(window))
        widget = PatternExplorer(example, window=window, sinks=0)
        kept = f"keeps {float(widget.kept().mean()):.0%}".replace("%", " %")
        assert kept in read_statuses(page)[0]
    for name, pattern in PRESETS.items():
        page.get_by_label("Pattern", exact=True).select_option(name)
        scores = f"computes {pattern.fit(32).count_scores(32):,} scores"
        assert scores in read_statuses(page)[0]
    page.click("text=Start again")
    page.get_by_label("Position", exact=True).focus()
    page.keyboard.press("Home")
    assert read_statuses(page)[1].startswith("Position 0 attends to 1 key.")
    picture = page.locator(".pt-picture").first
    box = picture.bounding_box()
    picture.click(position={"x": box["width"] / 2, "y": 13 * box["height"] / 33})
    assert read_statuses(page)[1].startswith("Position 12 attends to 4 keys.")
    page.click("summary")
    page.get_by_label("Sinks", exact=True).fill("2")
    assert "masks.sinks(32, 32, count=2)" in page.inner_text("pre code")


def test_attention_on_a_sound_and_on_a_picture(shown):
    widget = make_picture_and_sound(["o", "n", "e"], item=1)
    page = shown(widget.state(), "picture_and_sound")
    letters = page.get_by_role("list", name="Letters").locator("li")
    numbers = [float(x) for x in letters.locator("span").all_inner_texts()]
    masses = [widget.mass(1, s) for s in range(3)]
    assert numbers == pytest.approx(masses, abs=0.00501)
    page.get_by_label("Letter", exact=True).focus()
    page.keyboard.press("End")
    status = page.locator("p[role=status]")
    assert status.inner_text().startswith("Letter 3 of 3: “e”")
    letters.nth(0).click()
    assert status.inner_text().startswith("Letter 1 of 3")
    page.get_by_label("Show", exact=True).select_option("0")
    assert f"gives {widget.mass(0, 0):.2f} of its weight" in status.inner_text()
    picture = page.locator(".ps-picture").bounding_box()
    frame = page.locator(".ps-mark").bounding_box()
    assert frame["x"] - picture["x"] == pytest.approx(picture["width"] / 4, abs=2)
    page.get_by_label("True place", exact=True).uncheck()
    assert not page.locator(".ps-mark").is_visible()


def read_score(page):
    status = page.locator("[role=status]").text_content()
    return status.split("score ")[1].split(". ")[0]


def test_the_position_explorer(shown):
    widget = PositionExplorer()
    page = shown(widget.state(), "position_explorer")
    shown_score = read_score(page).replace("\N{MINUS SIGN}", "-")
    assert shown_score == f"{widget.score(*widget.positions):.2f}"
    before = read_score(page)
    both = page.get_by_label("Move both")
    both.focus()
    page.keyboard.press("End")
    assert read_score(page) == before  # only the distance matters
    page.get_by_label("Key position").focus()
    page.keyboard.press("Home")
    assert read_score(page) != before
    page.click("text=Start again")
    page.get_by_label("Method").select_option("sinusoidal")
    before = read_score(page)
    both.fill("50")
    assert read_score(page) != before
    page.get_by_label("Base").select_option("100")
    last = page.locator(".pe-waves button >> nth=-1")
    assert last.get_attribute("aria-label").endswith("wavelength 353 steps")


@pytest.mark.parametrize(
    ("stem", "state", "point"),
    [
        ("position_explorer", PositionExplorer().state(), ".pe-tip.pe-query"),
        ("soft_lookup", SoftLookup().state(), ".sl-query"),
    ],
)
def test_a_point_is_moved_by_keyboard_mouse_and_touch(shown, stem, state, point):
    page = shown(state, stem)
    tip = page.locator(point)
    seen = [tip.get_attribute("aria-label")]
    tip.focus()
    page.keyboard.press("Shift+ArrowLeft")
    seen.append(tip.get_attribute("aria-label"))
    box = tip.bounding_box()
    assert min(box["width"], box["height"]) >= 44  # a finger's size
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 30, box["y"], steps=4)
    page.mouse.up()
    seen.append(tip.get_attribute("aria-label"))
    assert tip.bounding_box()["x"] < box["x"]
    drag_by_touch(page, tip.bounding_box(), 60)
    seen.append(tip.get_attribute("aria-label"))
    assert len({*seen}) == 4
    assert page.evaluate("scrollY") == 0  # the page did not scroll instead


def test_the_soft_lookup(shown):
    def weights():
        found = page.locator(".sl-rows td:last-child").all_inner_texts()
        return [float(x) for x in found]

    widget = SoftLookup(query=[1, 0.2])
    page = shown(widget.state(), "soft_lookup")
    assert weights() == pytest.approx(list(widget.weights()), abs=0.00501)
    heat = page.get_by_label("Temperature")
    heat.focus()
    page.keyboard.press("Home")
    assert weights() == [1, 0, 0]
    page.keyboard.press("End")
    assert max(weights()) < 0.36
    page.click("text=Start again")
    page.get_by_label("Width D").focus()
    page.keyboard.press("End")
    scaled = max(weights())
    page.get_by_label("divide by √D").uncheck()
    assert max(weights()) > max(scaled, 0.95)


def test_the_tile_stepper(shown):
    def count(name):
        return page.locator(f".ts-scores .{name}").count()

    page = shown(TileStepper(step=0).state(), "tile_stepper")
    assert read_status(page).startswith("Nothing is done yet. 9 tiles")
    page.click("text=Next tile")
    page.click("text=Next tile")
    assert (count("ts-now"), count("ts-done")) == (6, 6)
    for _ in range(7):
        page.keyboard.press("Enter")
    assert read_status(page).endswith("All is done.")
    assert page.evaluate(FOCUSED) == "Back"  # the other one is disabled
    page.keyboard.press("Enter")
    assert read_status(page).startswith("Step 8 of 9")
    page.get_by_label("Queries in a tile").fill("5")
    assert read_status(page).startswith("Step 3 of 3")
    page.get_by_label("Keys S").fill("10")
    assert page.locator(".ts-scores thead th").count() == 10
    page.get_by_label("causal").check()
    assert count("ts-hidden-key") > 0


def test_the_cache_stepper(shown):
    def count(name):
        return page.locator(f".cs-pool .{name}").count()

    page = shown(CacheStepper(step=0).state(), "cache_stepper")
    assert read_status(page).startswith("Nothing is cached yet.")
    page.click("text=Next pass")
    assert (count("cs-new"), count("cs-read")) == (6, 0)
    for _ in range(3):
        page.keyboard.press("Enter")
    assert (count("cs-new"), count("cs-read")) == (1, 8)
    assert "so page 7 of the pool is taken" in read_status(page)
    assert page.get_by_label("Window").is_disabled()
    page.get_by_label("Cache", exact=True).select_option("GQA + window")
    assert (count("cs-outside"), count("cs-read")) == (3, 5)
    page.get_by_label("Window").fill("5")
    page.get_by_label("Positions in a page").select_option("2")
    assert "entry by entry: free, free, 7, 10, 13" in page.inner_text(".cs-pictures")
    page.get_by_label("Passes").press("End")
    assert page.get_by_text("Next pass").is_disabled()
    page.click("text=To the start")
    assert page.evaluate(FOCUSED) == "Next pass"  # the other one is disabled
    assert count("cs-new") == 0


QUIZ = {
    "title": "Quiz",
    "questions": [
        {
            "prompt": [{"text": "Is "}, {"math": "a<b"}, {"code": "x"}],
            "choices": [
                {"content": [{"text": t}], "feedback": [{"text": f"so {t}"}]}
                | {"right": t == "c"}
                for t in "abc"
            ],
        }
    ],
}


def test_a_quiz_by_keyboard(shown):
    page = shown(QUIZ, "quiz")
    page.focus("input")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert read_statuses(page) == ["", ""]
    page.keyboard.press("Enter")
    message = "All answered; 1 of 1 right at the first try."
    assert read_statuses(page) == ["✓ Right. so c", message]


def test_a_question_can_be_answered_again_after_a_wrong_answer(shown):
    page = shown(QUIZ, "quiz")
    page.click("text=Check")
    assert page.inner_text(".quiz-feedback") == "Choose an answer first."
    for choice, opening in [("a", "✗ Not this one. so a"), ("c", "✓ Right.")]:
        page.get_by_label(choice, exact=True).check()
        page.click("text=Check")
        assert page.inner_text(".quiz-feedback").startswith(opening)
    assert "0 of 1 right at the first try" in page.inner_text(".quiz-score")
