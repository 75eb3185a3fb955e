import json
import re
import subprocess
import sys

import pytest

from small_site import build_site
from workshop.book import math

pytestmark = pytest.mark.precision


def test_a_formula_becomes_mathml():
    made = math.convert_to_mathml(r"\frac{1}{\sqrt{D}}")
    assert made.startswith("<math")
    assert "<mfrac>" in made
    assert "<msqrt>" in made
    assert 'display="block"' not in made
    assert 'display="block"' in math.convert_to_mathml("x", display=True)


@pytest.mark.parametrize(
    ("tex", "words"),
    [
        (r"\frac{1}{\sqrt{D}}", "1 over square root of D"),
        (r"\sum_{j=1}^{S} w_j v_j", "sum over j equals 1 to S w sub j v sub j"),
        (r"QK^\top", "Q K transposed"),
        (r"\alpha_{ij} \le e^{-\delta}", "alpha sub i j is at most e to the"),
        (r"\bar h", "h bar"),
        (r"\tanh(Ws)", "tanh ( W s )"),
        (r"W'x \odot y", "W prime x elementwise times y"),
        (r"\text{not } x", "not x"),
        (r"a \in \{0, 1\}", "a in { 0 , 1 }"),
    ],
)
def test_a_formula_is_described_in_words(tex, words):
    message = math.speak_formula(math.convert_to_mathml(tex))
    assert message.startswith(words)
    assert f'aria-label="{message}"' in math.convert_to_mathml(tex)


def test_words_of_a_formula_are_escaped_in_html():
    made = math.convert_to_mathml(r'\text{"><b>}')
    assert "<b>" not in made
    assert 'aria-label="&quot;' in made


def test_a_process_that_rendered_a_formula_ends():
    code = "from workshop.book import math; math.convert_to_mathml('x')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_invalid_formula_is_named():
    with pytest.raises(ValueError, match=r"cannot read '\\\\frac\{1'"):
        math.convert_to_mathml(r"\frac{1")


@pytest.mark.parametrize(
    ("tex", "spaces", "prefixes"),
    [
        (r"-\ln p", 1, 0),
        (r"v^\top \tanh(x)", 1, 0),
        (r"w_j \ln w_j", 2, 0),
        (r"\max_k s_k", 1, 0),
        (r"\exp(-x)", 0, 1),
        (r"|a| - b = -2", 0, 1),
    ],
)
def test_functions_and_signs_are_spaced_as_in_print(tex, spaces, prefixes):
    made = math.convert_to_mathml(tex)
    assert made.count("<mspace") == spaces
    assert made.count('form="prefix"') == prefixes


def test_formulas_side_by_side_are_split_outside_of_groups_only():
    tex = r"a = \{1\}, \qquad \left( b \qquad c \right) \qquad \text{if } d"
    parts = [r"a = \{1\},", r"\left( b \qquad c \right)", r"\text{if } d"]
    assert math.split_formulas(tex) == parts


def test_aligned_equations_are_read():
    tex = math.replace_environment(r"\begin{align}a&=b\\c&=d\end{align}")
    assert "<mtable" in math.convert_to_mathml(tex, display=True)


def test_formulas_in_outputs_are_rendered_and_nothing_else():
    state = {"prompt": [{"math": "a<b"}, {"text": "</script>"}]}
    text = json.dumps(state).replace("<", "\\u003c")
    body = (
        r'<span class="math">\(x &lt; y\)</span><p>\(z\)</p>'
        '<div data-book-widget="quiz"><script type="application/json">'
        f"{text}</script></div>"
    )
    made = math.render_text(body, "page")
    assert "<mi>y</mi>" in made
    assert r"<p>\(z\)</p>" in made
    inner = made.split('json">')[1].split("</script>")[0]
    assert "<" not in inner
    prompt = json.loads(inner)["prompt"]
    assert prompt[0]["mathml"].startswith("<math")
    assert prompt[1] == {"text": "</script>"}


def build(folder, text):
    return build_site(folder, f"# A page\n\nThe formula {text} here.\n", ["math"])


def test_a_broken_formula_stops_the_build_and_says_on_which_page(tmp_path):
    made = build(tmp_path, r"$\frac{1$")
    assert made.returncode != 0
    assert "index.md" in made.stderr
    assert "KaTeX cannot read" in made.stderr
    assert "Traceback" not in made.stderr


def test_a_formula_is_mathml_in_the_page(tmp_path):
    made = build(tmp_path, r"$\frac{1}{2}$")
    assert made.returncode == 0, made.stderr
    assert "<mfrac>" in (tmp_path / "out/index.html").read_text("utf8")


def test_punctuation_stays_on_the_line_of_its_formula(tmp_path):
    text = "# A\n\nLet $x$, ($y$). Then $z$ follows, and $w$\n"
    made = build_site(tmp_path, text, ["math"])
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "out/index.html").read_text("utf8")
    together = re.findall(r'<span class="together">(.*?)</span>', page)
    assert [text.rpartition("</math>")[2] for text in together] == [",", ")."]
    words = re.sub(r"<math.*?</math>", "M", page)
    words = re.sub(r"<[^>]+>", "", words)
    assert "Let M, (M). Then M follows, and M" in words
