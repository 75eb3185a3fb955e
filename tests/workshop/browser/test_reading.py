"""What a reader does on the built pages, by mouse and keyboard.

`make book` comes first. One chapter shows what the same code does on every page.
"""

import re
from itertools import product

import pytest
import torch

from attnbook.masks import causal, convert_mask
from attnbook.masks.conventions import LIBRARIES, write_mask
from built_pages import HTML, PAGES

pytestmark = pytest.mark.browser

SLUG = "04_scaled_dot_product"
PAGE = f"chapters/{SLUG}.html"
PROOF = ".proof"
FOLDED = "chapters/02_bahdanau.html"
PHONE = {"width": 390, "height": 800}


@pytest.mark.parametrize("way", ["http", "file"])
def test_search_finds_a_word_of_a_chapter(opened, http_root, way):
    root = http_root if way == "http" else HTML.as_uri() + "/"
    page = opened("search.html?q=alignment", root)
    page.wait_for_selector("ul.search li a")
    links = page.eval_on_selector_all("ul.search li a", "all => all.map(a => a.href)")
    assert any("02_bahdanau" in link for link in links)
    assert page.wrong == []  # no summaries: nothing is fetched from file://


def test_the_page_turns_dark_and_the_next_one_is_dark_too(opened):
    page = opened(PAGE)
    theme = "document.documentElement.dataset.theme"
    while page.evaluate(theme) != "dark":
        page.locator("button.mode-button:visible").first.click()
    page.goto(page.url.replace(SLUG, "05_self_attention"))
    assert page.evaluate(theme) == "dark"


def test_menus_open_and_close_by_keyboard_on_a_phone(opened):
    page = opened(PAGE, viewport=PHONE)
    for menu in ("menu", "sections"):
        page.focus(f".{menu}-button")
        page.keyboard.press("Enter")
        assert page.is_visible(f"#{menu}")
        page.keyboard.press("Escape")
        assert not page.is_visible(f"#{menu}")
        focused = page.evaluate("document.activeElement.className")
        assert focused.endswith(f"{menu}-button")


def test_code_is_copied(opened):
    page = opened(PAGE, permissions=["clipboard-read", "clipboard-write"])
    cell = page.locator("div.cell_input div.highlight:visible").first
    cell.hover()
    cell.locator("button.copy").click()
    page.wait_for_selector("body > [role=status]:text('Copied')", state="attached")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == cell.locator("pre").inner_text().strip()


def test_a_proof_opens_by_touch_and_by_keyboard(opened):
    page = opened(FOLDED, viewport=PHONE)
    proof = page.locator(PROOF).first
    proof.scroll_into_view_if_needed()
    mark, code = proof.locator("summary"), proof.locator("pre")
    assert mark.text_content().startswith("✓Checked: ")
    assert mark.bounding_box()["width"] < 30
    assert not code.is_visible()
    mark.click()
    assert code.is_visible()
    assert "@title" not in code.text_content()
    mark.focus()
    page.keyboard.press("Enter")
    assert not code.is_visible()


def test_switches_open_all_code_and_show_all_results_on_every_page(opened):
    page = opened(FOLDED)
    switch = page.get_by_role("button", name="Show all folded code")
    switch.focus()
    page.keyboard.press("Enter")
    assert page.locator(".folded:not([open])").count() == 0
    page.get_by_role("button", name="Fold all code").click()
    assert page.locator(".folded[open]").count() == 0
    page.locator('[data-book-widget="prediction"]').first.scroll_into_view_if_needed()
    page.wait_for_selector(".covered")
    assert not page.locator(".covered > *").first.is_visible()
    page.get_by_role("button", name="Show all results").click()
    assert page.locator(".covered > *").first.is_visible()
    page.goto(page.url.replace("02_bahdanau", SLUG))
    assert page.get_by_role("button", name="Ask me to predict").is_visible()


def test_a_folded_cell_opens_without_scripts(scriptless):
    scriptless.goto((HTML / FOLDED).as_uri())
    scriptless.locator(f"{PROOF} > summary").first.click()
    assert scriptless.locator(f"{PROOF} pre").first.is_visible()


def test_ticked_exercises_are_kept_and_counted_on_every_page(opened):
    page = opened(PAGE)
    count = len(re.findall(r"<h3>Exercise \d", (HTML / PAGE).read_text("utf8")))
    boxes = page.locator("label.tick input")
    boxes.last.wait_for()
    assert boxes.count() == count
    boxes.nth(0).check()
    boxes.nth(2).focus()
    page.keyboard.press("Space")
    mark = f'.menu [data-chapter="{SLUG}"] .ticked'
    page.goto(page.url.replace(SLUG, "05_self_attention"))
    assert page.text_content(mark) == f"✓ 2/{count}"
    page.go_back()
    page.wait_for_selector("label.tick input")
    assert [boxes.nth(i).is_checked() for i in range(3)] == [True, False, True]
    assert page.wrong == []


STILL = """async () => {
  const frame = () => new Promise((then) => requestAnimationFrame(then));
  let last = performance.now();
  for (let before = NaN; performance.now() - last < 500; await frame())
    if (scrollY !== before) [before, last] = [scrollY, performance.now()];
  return true;
}"""
TOP = "e => e.getBoundingClientRect().top"


@pytest.mark.parametrize("width", [390, 1280])
def test_a_link_into_a_page_scrolls_to_its_heading(browser, width):
    """Parts that are not laid out yet have other heights than they will."""
    name = next(x for x in PAGES if "chapters/09_" in x)
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto((HTML / name).as_uri() + "#quiz")
    page.wait_for_function(STILL)
    assert 0 <= page.locator("#quiz").evaluate(TOP) <= 120
    page.evaluate("""document.querySelector('a[href="#exercises"]').click()""")
    page.wait_for_function(STILL)
    assert 0 <= page.locator("#exercises").evaluate(TOP) <= 120
    page.mouse.wheel(0, -3000)  # whoever moves on is not pulled back
    page.wait_for_function(STILL)
    assert page.locator("#exercises").evaluate(TOP) > 120
    context.close()


def test_a_link_leads_past_a_deeper_section(opened):
    page = opened(PAGE, viewport=PHONE)
    link = page.locator(".past a").first
    target = link.get_attribute("href")
    link.click()
    page.wait_for_function(STILL)
    assert 0 <= page.locator(target).evaluate(TOP) <= 120
    page.emulate_media(media="print")
    assert not link.is_visible()


def test_a_diagram_is_downloaded_under_a_name_of_its_own(opened):
    page = opened(PAGE)
    with page.expect_download() as taken:
        page.get_by_text("Download (SVG)").first.click()
    assert taken.value.suggested_filename == f"{SLUG}-diagram-1.svg"
    assert "<svg" in taken.value.path().read_text("utf8")


def test_the_lines_that_convert_a_mask_are_true_for_every_pair(opened):
    """Chosen by keyboard, from a file; each line runs and gives the mask asked for."""
    page = opened("chapters/libraries.html", HTML.as_uri() + "/")
    page.focus("#from-library")
    page.keyboard.press("Home")
    assert 'given="keep", wanted="keep"' in page.inner_text(".mask-choice pre")
    names = page.eval_on_selector_all(
        "#to-library option", "all => all.map(o => o.value)"
    )
    keep = causal(2, 3)
    for given, wanted in product(names, names):
        page.select_option("#from-library", given)
        page.select_option("#to-library", wanted)
        first, *plain = page.inner_text(".mask-choice pre").splitlines()
        taken = LIBRARIES.get(given, [given])
        assert len(plain) == 2 * len(taken)
        for convention, line in zip(taken, plain[1::2], strict=True):
            mask = write_mask(keep, convention)
            for code in first, line:
                run = {"torch": torch, "convert_mask": convert_mask, "mask": mask}
                exec(code, run)
                assert torch.equal(run["converted"], write_mask(keep, wanted)), code
    assert page.wrong == []
