"""The experiments on which words are misaligned, and why."""

import pytest
import torch

from attnbook.data import grammar
from attnbook.data.grammar.examples import (
    build_animal_example,
    build_car_example,
)
from attnbook.models.bahdanau import BahdanauDecoder
from attnbook.records import read_record
from attnbook.training.batching import make_batch
from attnbook.training.trained import load_trained
from workshop.experiments.decoder_mistakes import (
    DECODERS,
    build_model,
    draw_task,
)
from workshop.experiments.position_shift import (
    build_memories,
    compute_state_halves,
    find_cut,
)
from workshop.experiments.word_alignment import (
    Row,
    classify_word,
    compute_risk_ratio,
    count_by_type,
    read_words,
)


def test_swapped_adjective_and_noun_have_a_word_type_of_their_own():
    pair = grammar.align_words(build_car_example())
    kinds = {word: classify_word(pair, t) for t, word in enumerate(pair.target)}
    assert kinds["voiture"] == kinds["rouge"] == "adjective or noun, swapped"
    assert kinds["la"] == "article"
    assert kinds["il"] == "other"
    tired = grammar.align_words(build_animal_example("tired"))
    assert classify_word(tired, tired.target.index("pas")) == "pas, jamais"
    assert classify_word(tired, tired.target.index("parce")) == "one of two for one"


def rows(word, aligned, wrong, misaligned, wrong_too):
    return [
        Row(0, word, word, 0, int(i >= aligned), right)
        for i, right in enumerate(
            [True] * (aligned - wrong)
            + [False] * wrong
            + [True] * (misaligned - wrong_too)
            + [False] * wrong_too
        )
    ]


def test_the_risk_ratio_of_one_stratum_is_the_ratio_of_error_rates():
    some = rows("le", 100, 10, 50, 20)
    assert compute_risk_ratio(some) == pytest.approx((20 / 50) / (10 / 100))


def test_the_stratified_ratio_is_not_misled_by_easy_words():
    easy, hard = rows("le", 100, 1, 100, 3), rows("chat", 100, 20, 10, 6)
    both = easy + hard
    assert compute_risk_ratio(both) < 1
    assert compute_risk_ratio(both, lambda row: row.word) == pytest.approx(3.0)


@pytest.mark.long
def test_the_record_of_word_types_is_that_of_the_stored_weights():
    model, data, _ = load_trained("grammar_attention_0")
    some = data.splits.test[:50]
    found = count_by_type(list(read_words(model, data, some)))
    stored = read_record("word_alignment")["results"]["seeds"][0]["types"]
    assert set(found) <= set(stored)
    for kind, counts in found.items():
        assert all(n <= stored[kind][name] for name, n in counts.items())
    words = sum(counts["words"] for counts in found.values())
    assert words == sum(len({t for t, _ in p.possible}) for p in some)


def test_no_link_crosses_a_cut():
    cuts = [(p, find_cut(p)) for p in grammar.load().test[:200]]
    cuts = [(p, cut) for p, cut in cuts if cut]
    assert len(cuts) > 20
    for p, (t, s) in cuts:
        assert all((a >= t) == (b >= s) for a, b in p.possible)


def test_moved_states_differ_in_their_forward_halves_only():
    model, data, _ = load_trained("grammar_attention_0")
    (forward, _), where = compute_state_halves(model, data, data.splits.valid[:300])
    means = torch.stack([forward[where == n].mean(0) for n in range(20)])
    pair = next(p for p in data.splits.test if len(p.source) >= 14 and find_cut(p))
    with torch.no_grad():
        made = build_memories(model, data, means, pair, find_cut(pair)[1])
    plain = made["share 0"][0][0].states
    half = plain.shape[-1] // 2
    for tried in made.values():
        for memory, _ in tried:
            same = memory.states[..., half:], plain[..., half:]
            assert torch.allclose(*same, atol=1e-5)
    right = made["right positions"][0][0].states - plain
    length = right[..., :half].norm(dim=-1)
    for memory, _ in made["random direction"]:
        step = (memory.states - plain)[..., :half]
        assert torch.allclose(step.norm(dim=-1), length, rtol=1e-3)
        assert not torch.allclose(step, right[..., :half], atol=1e-2)
    assert sorted(made["reversed"][0][1]) == sorted(made["right positions"][0][1])


@pytest.fixture(scope="module")
def task():
    return draw_task()


def test_only_the_right_decoder_computes_what_the_library_computes(task):
    made = make_batch(sorted(task.encode(task.splits.test[:9]), key=str))
    want = build_model(task, BahdanauDecoder, 0)(*made[:3]).logits
    for name, decoder in DECODERS.items():
        got = build_model(task, decoder, 0)(*made[:3]).logits
        assert torch.allclose(got, want, atol=1e-6) == (name == "right"), name
