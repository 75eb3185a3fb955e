"""The glossary has every term of the field that a course must contain."""

import re
import tomllib
from pathlib import Path

import pytest

from workshop.book.front_matter import read_chapters
from workshop.book.glossary import TERMS, Term, read_terms, write_term
from workshop.chapters import find_chapter, read_unfinished

pytestmark = pytest.mark.precision

CHAPTERS = Path(__file__).parents[3] / "chapters"
KNOWN = {front.slug for front in read_chapters(CHAPTERS)}
GLOSSARY = read_terms(tomllib.loads(TERMS.read_text("utf8")), KNOWN)
WANTED = """encoder-decoder, seq2seq, teacher forcing, exposure bias, context
vector, alignment, additive attention, multiplicative attention, global
attention, local attention, input feeding, query, key, value, soft lookup,
temperature, logits, saturation, self-attention, cross-attention, causal
attention, autoregressive, permutation equivariance, multi-head, MQA, GQA, head
pruning, padding mask, sliding window, document packing, prefix LM, attention
sink, sinusoidal, learned positions, relative positions, ALiBi, T5 bias, RoPE,
context extension, residual connection, LayerNorm, RMSNorm, feed-forward
network, GELU, SwiGLU, weight tying, label smoothing, warm-up, perplexity,
FLOP, arithmetic intensity, roofline, memory-bound, online softmax, tiling,
recomputation, HBM, SRAM, kernel fusion, KV cache, prefill, decode"""
GOOD = {
    "name": "Roofline",
    "other": ["roofline model"],
    "says": "A bound on speed.",
    "chapter": "10_cost",
}


@pytest.mark.parametrize("wanted", re.split(r",\s+", WANTED))
def test_a_term_of_the_field_has_an_entry(wanted):
    names = " | ".join(" | ".join((x.name, *x.other)) for x in GLOSSARY)
    plain = names.replace("\N{EN DASH}", "-").lower()
    assert " ".join(wanted.split()).lower() in plain


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda x: x.name)
def test_a_term_is_said_in_one_or_two_sentences(term):
    sentences = re.findall(r"[.!?](?= [A-Z]|$)", term.says)
    assert 1 <= len(sentences) <= 2
    assert term.says.endswith(".")
    assert len(term.says.split()) <= 45


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda x: x.name)
def test_the_module_of_a_term_is_built_where_it_is_taught_or_before(term):
    if term.module:
        built = find_chapter(term.module)
        assert built == "everywhere" or built <= term.chapter


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda x: x.name)
def test_a_finished_chapter_uses_the_terms_it_introduces(term):
    if term.chapter not in read_unfinished():
        text = (CHAPTERS / f"{term.chapter}.md").read_text("utf8")
        assert term.used_in(text), f"{term.chapter} does not say {term.name}"


@pytest.mark.parametrize(
    "text",
    [
        "Some text.\n\n```{code-cell} ipython3\n# a tile\n```\n\nMore.",
        "<details>\n<summary>Solution</summary>\n\na tile\n\n</details>",
        "---\ntitle: a tile\n---\nSome text.",
    ],
)
def test_a_term_in_code_or_in_a_solution_is_not_used(text):
    assert not Term("Tile", (), "", "").used_in(text)
    assert Term("Tile", (), "", "").used_in(f"{text} A tile.")


def test_a_term_is_found_in_a_sentence_with_any_dash_or_line_break():
    term = Term("Encoder\N{EN DASH}decoder", ("seq2seq",), "", "", None)
    for text in (
        "an encoder-decoder",
        "Encoder\u2013decoders",
        "the seq2seq one",
    ):
        assert term.used_in(text)
    assert Term("Context vector", (), "", "").used_in("a context\nvector")
    assert not Term("Tile", (), "", "").used_in("a reptile and a textile")


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chapter": None}, "'Roofline' has no chapter"),
        ({"says": None}, "'Roofline' has no says"),
        ({"chapter": "10_coast"}, "'10_coast', which is none of"),
        ({"module": "attnbook.profiling.rooftop"}, "rooftop, which is not"),
    ],
)
def test_an_incomplete_term_is_refused_by_its_name(change, message):
    entry = {k: v for k, v in (GOOD | change).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        read_terms({"term": [entry]}, KNOWN)


@pytest.mark.refusal
def test_a_term_that_stands_twice_is_refused():
    with pytest.raises(ValueError, match="'roofline' occurs twice"):
        read_terms({"term": [GOOD, GOOD | {"name": "roofline"}]}, KNOWN)


def test_a_term_is_shown_with_its_chapter_and_module():
    term = Term("A", ("B", "C"), "It is.", "10_cost", "attnbook.profiling.roofline")
    assert write_term(term, 10) == (
        "### A\n\nIt is. Also: B, C. [Chapter 10](10_cost.ipynb); "
        "[`attnbook.profiling.roofline`](reference/profiling.md).\n\n"
    )


@pytest.mark.browser
def test_the_search_box_finds_a_term_by_its_names(opened):
    for word in "GQA", "roofline", "skip connection":
        page = opened(f"search.html?q={word}")
        found = page.locator("#search-results a")
        glossary = found.filter(has_text="Glossary").first
        glossary.wait_for()
        href = glossary.get_attribute("href")
        assert href.startswith("chapters/glossary.html")
