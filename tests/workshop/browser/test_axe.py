"""Of texts that look alike, axe checks three and still finds every defect.

Each page has many texts of one look, and one text that differs from them.
"""

import pytest

from accessibility import run_axe

pytestmark = pytest.mark.browser

PALE = "color: #aaa"
DARK = "background: #444"
LINE = "<p>A line with <a href='#x'>a link</a> and <code>code</code>.</p>"
DEFECTS = {
    "pale": f"<p style='{PALE}'>A pale line.</p>",
    "pale in a line": f"<p>A line with <span style='{PALE}'>a word</span>.</p>",
    "in a dark box": f"<div style='{DARK}'><p>A line.</p></div>",
    "in a translucent box": "<div style='opacity: .3'><p>A line.</p></div>",
    "in front of a dark box": "<div style='position: relative'>"
    f"<div style='position: absolute; inset: 0; {DARK}'></div>"
    "<p style='position: relative'>A line.</p></div>",
    "drawn over a dark box": f"<div style='height: 40px; {DARK}'></div>"
    "<p style='margin: -40px 0 0; position: relative'>A line.</p>",
    "outside a white box": f"<div style='{DARK}'><div style='height: 1px; "
    "background: white'><p style='transform: translateY(3em)'>A line.</p>"
    "</div><div style='height: 8em'></div></div>",
    "small": "<p style='color: #888; font-size: 12px'>A line.</p>",
    "in a row of a table": "<table>"
    + "<tr><td>A cell.</td></tr>" * 9
    + f"<tr><td style='{PALE}'>A cell.</td></tr></table>",
}


def show(page, middle):
    html = LINE * 9 + middle + LINE * 9
    page.evaluate(
        "html => { document.body.innerHTML = `<main id='x'>"
        "<h1>Lines</h1>${html}</main>`; }",
        html,
    )


@pytest.mark.parametrize("what", DEFECTS)
def test_a_low_contrast_text_among_many_is_found(shown, what):
    page = shown({"questions": []}, "quiz")
    page.emulate_media(color_scheme="light")
    page.add_style_tag(content="body { background: white; color: black }")
    show(page, "")
    sound = run_axe(page)
    show(page, DEFECTS[what])
    for colours_only in (False, True):
        found = run_axe(page, colours_only)
        more = [x for x in found if x not in sound]
        assert "color-contrast" in {rule for _, rule, _ in more}
