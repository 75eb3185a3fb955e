"""A folded cell is one line: it opens by mouse and keyboard, and prints so."""

import pytest

from built_pages import CHAPTERS

pytestmark = pytest.mark.browser

# One chapter shows what the same code does on every page: one whose first proof
# no prediction covers.
PAGE = next((name for name in CHAPTERS if "02_" in name), "no page built")
PROOFS = ".folded:has(> summary:text('Checked: '))"


def proof(page):
    """Return the first proof of a page, in view."""
    found = page.locator(PROOFS).first
    found.scroll_into_view_if_needed()
    found.locator("summary").wait_for()  # far parts are laid out when near
    return found


def test_a_proof_is_one_line_that_says_what_is_checked(opened):
    page = opened(PAGE)
    line = proof(page).locator("summary")
    assert line.text_content().startswith("✓ Checked: ")
    assert not proof(page).locator("pre").is_visible()
    assert 24 <= line.bounding_box()["height"] < 60


def test_a_folded_cell_opens_by_mouse_and_by_keyboard(opened):
    page = opened(PAGE)
    line, code = proof(page).locator("summary"), proof(page).locator("pre")
    line.click()
    assert code.is_visible()
    assert "assert" in code.text_content()
    assert "@title" not in code.text_content()
    line.focus()
    page.keyboard.press("Enter")
    assert not code.is_visible()
    page.keyboard.press("Space")
    assert code.is_visible()


def test_one_switch_opens_every_folded_cell_and_closes_them(opened):
    page = opened(PAGE)
    switch = page.locator(".open-folded")
    assert switch.text_content() == "Show all folded code"
    every = page.locator(".folded").count()
    switch.focus()
    page.keyboard.press("Enter")
    assert page.locator(".folded[open]").count() == every > 10
    assert switch.text_content() == "Fold all code"
    switch.click()
    assert page.locator(".folded[open]").count() == 0
    proof(page).locator("summary").click()
    assert switch.text_content() == "Show all folded code"


def test_a_proof_prints_as_its_line(opened):
    page = opened(PAGE)
    page.emulate_media(media="print")
    assert proof(page).locator("summary").is_visible()
    assert not proof(page).locator("pre").is_visible()
    assert not page.locator(".open-folded").is_visible()


def test_folded_lines_fit_a_phone(opened):
    page = opened(PAGE, viewport={"width": 390, "height": 800})
    wide = "() => document.documentElement.scrollWidth"
    page.locator(".open-folded").click()
    assert page.evaluate(wide) <= 390
    assert proof(page).locator("summary").bounding_box()["width"] <= 390


def test_without_scripts_each_line_still_opens(scriptless, http_root):
    scriptless.goto(http_root + PAGE)
    line = scriptless.locator(f"{PROOFS} > summary").first
    line.click()
    assert scriptless.locator(f"{PROOFS} pre").first.is_visible()
    assert scriptless.locator(".open-folded").count() == 0
