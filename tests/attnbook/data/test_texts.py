"""The texts: splits without overlap, alignments, pieces, the table of models."""

import doctest

import pytest

from attnbook.data import cmudict, grammar, libreoffice
from attnbook.data.attention_census import load_census
from attnbook.data.grammar import EXAMPLES, load_example

pytestmark = pytest.mark.precision


def test_no_word_of_cmudict_is_in_two_splits():
    splits = cmudict.load()
    parts = splits.train, splits.valid, splits.test
    train, valid, test = ({p.source for p in part} for part in parts)
    assert [len(x) for x in (train, valid, test)] == [116_926, 2_000, 6_000]
    assert not (train & valid or train & test or valid & test)


def test_every_pronunciation_of_a_word_is_a_reference():
    found = [p for p in cmudict.load().train if p.source == tuple("either")]
    sounds = {p.target for p in found}
    assert sounds == {("IY", "DH", "ER"), ("AY", "DH", "ER")}
    assert all({*p.references} == sounds for p in found)


def test_an_alignment_is_printed_as_the_docstring_shows_it():
    assert doctest.testmod(grammar).failed == 0


def test_a_link_joins_words_that_exist_and_sure_links_are_possible():
    sets = grammar.load().test, grammar.load_long(), grammar.load_short(8)[:1000]
    for pair in (pair for one in sets for pair in one):
        assert pair.sure <= pair.possible
        for row, column in pair.possible:
            assert 0 <= row < len(pair.target) and 0 <= column < len(pair.source)


def test_no_sentence_of_the_grammars_test_sets_was_trained_on():
    load = grammar.load()
    parts = load.train, load.valid, load.test, grammar.load_long()
    sources = [pair.source for part in parts for pair in part]
    assert len(set(sources)) == len(sources)
    assert {load_example(name).source for name in EXAMPLES}.isdisjoint(sources)


def test_pieces_join_to_the_sentence_they_came_from():
    for whole, parts in zip(
        vars(libreoffice.load_text()).values(),
        vars(libreoffice.load()).values(),
        strict=True,
    ):
        for one, other in zip(whole, parts, strict=True):
            assert libreoffice.join_pieces(other.source) == one.source[0]
            assert libreoffice.join_pieces(other.target) == one.target[0]


def test_characters_are_those_of_the_sentences_in_order():
    ids, symbols = libreoffice.encode_characters("valid")
    letters = libreoffice.alphabet()
    text = "".join("?" if i == len(letters) else letters[i] for i in ids.tolist())
    wanted = "\n".join(p.source[0] for p in libreoffice.load_text().valid)
    assert "\n" in letters
    assert symbols == len(letters) + 1 and len(text) == len(wanted)
    assert text == "".join(c if c in letters else "?" for c in wanted)


def test_rows_of_the_table_of_models_are_those_read_by_hand():
    rows = {row["model"]: row for row in load_census()}
    gpt = rows["gpt_oss"]
    assert gpt["kinds"] == {"window": 18, "full": 18} and gpt["window"] == "128"
    assert (gpt["heads"], gpt["key_value_heads"]) == ("64", "8")
    assert gpt["sinks"] is True and gpt["gate"] is False
    assert rows["deepseek_v32"]["selection"] == "2048 keys"
    assert rows["lfm2"]["other_kinds"] == ("convolution",)
    for row in rows.values():
        assert row["year"] in (2025, 2026)
        assert sum(row["kinds"].values()) == row["layers"] > 0


@pytest.mark.refusal
def test_unknown_examples_and_characters_are_refused():
    with pytest.raises(ValueError, match="'cat'; there are"):
        load_example("cat")
    with pytest.raises(ValueError, match="8 or 10 words, not 9"):
        grammar.load_short(9)
    with pytest.raises(ValueError, match=r"^'Ж' in 'Open Ж' .* 'en'$"):
        libreoffice.split_into_pieces("Open Ж", "en")
