"""Attention on a picture and a sound in a browser: keys, mouse, themes."""

import pytest

from widget_examples import WIDE, make_picture_and_sound

pytestmark = pytest.mark.browser

STEM = "picture_and_sound"


@pytest.fixture(scope="module")
def widget():
    return make_picture_and_sound(["o", "n", "e"], item=1)


@pytest.fixture
def page(shown, widget):
    return shown(widget.state(), STEM)


def read_status(page):
    return page.locator("p[role=status]").inner_text()


def test_a_sound_is_shown_with_its_letters_and_their_numbers(page, widget):
    assert read_status(page).startswith("Letter 1 of 3: “o” of “o”. Attention")
    letters = page.get_by_role("list", name="Letters").locator("li")
    shown = [float(x) for x in letters.locator("span").all_inner_texts()]
    mine = [widget.mass(1, s) for s in range(3)]
    assert shown == pytest.approx(mine, abs=0.00501)
    assert page.locator(".ps-axis").inner_text().split("\n") == [
        "0 s",
        "0.24 s",
    ]
    label = page.get_by_role("img").get_attribute("aria-label")
    assert label.startswith("Spectrogram") and "Letter 1 of 3" in label


def test_arrow_keys_and_clicks_choose_a_letter(page):
    page.get_by_label("Letter", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert read_status(page).startswith("Letter 2 of 3: “n”")
    page.keyboard.press("End")
    assert read_status(page).startswith("Letter 3 of 3: “e”")
    page.keyboard.press("ArrowLeft")
    page.get_by_role("list", name="Letters").locator("li").nth(0).click()
    assert read_status(page).startswith("Letter 1 of 3")
    assert page.get_by_label("Letter", exact=True).input_value() == "0"
    assert page.locator(".ps-now").inner_text().startswith("o")


def test_a_picture_has_no_slider_and_names_digit_and_answer(page, widget):
    page.get_by_label("Show", exact=True).select_option("0")
    assert read_status(page) == (
        "The digit is “e”, the model's answer “o”. Attention gives "
        f"{widget.mass(0, 0):.2f} of its weight to the box of the digit; equal "
        f"weights would give {widget.chance(0, 0):.2f}."
    )
    assert not page.get_by_label("Letter", exact=True).is_visible()
    assert not page.get_by_role("list", name="Letters").is_visible()
    picture = page.locator(".ps-picture").bounding_box()
    frame = page.locator(".ps-mark").bounding_box()
    assert frame["x"] - picture["x"] == pytest.approx(picture["width"] / 4, abs=2)
    assert frame["height"] == pytest.approx(2 / 3 * picture["height"], abs=3)


def test_attention_and_frame_can_be_switched_off(page):
    data = "e => e.toDataURL()"
    canvas = page.locator(".ps-picture canvas")
    before = canvas.evaluate(data)
    page.get_by_label("Attention", exact=True).uncheck()
    assert canvas.evaluate(data) != before
    page.get_by_label("Attention", exact=True).check()
    assert canvas.evaluate(data) == before
    assert page.locator(".ps-mark").is_visible()
    page.get_by_label("True place", exact=True).uncheck()
    assert not page.locator(".ps-mark").is_visible()


def test_the_picture_is_painted_in_the_colors_of_the_theme(page):
    data = "e => e.toDataURL()"
    canvas = page.locator(".ps-picture canvas")
    seen = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_timeout(50)
        seen.append(canvas.evaluate(data))
    assert seen[0] != seen[1]


@pytest.mark.parametrize("size", [320, 390, 768, 1280])
def test_picture_and_letters_fit_the_screen(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    for name in (".ps-picture", ".ps-words"):
        box = page.locator(name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size, name
    over = page.locator(".ps-pair, .ps-words").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert over == 0
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size
