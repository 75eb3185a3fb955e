"""The two tasks whose evidence is known, and the classifier that attends."""

import torch

from attnbook.models.recurrent import Encoder
from workshop.experiments.attention_explanation import (
    CLASSES,
    FILLERS,
    WORDS,
    AttentionClassifier,
    draw_keyword_task,
    draw_question_task,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_question_names_the_word_that_has_the_answer():
    batch = draw_question_task(50, 7, rng())
    assert batch.words.shape == (50, 7)
    for words, question, answer, evidence in zip(
        *(x.tolist() for x in batch), strict=True
    ):
        names = [word // CLASSES for word in words]
        assert len({*names}) == 7
        assert names[evidence] == question
        assert words[evidence] % CLASSES == answer
    assert {*batch.answer.tolist()} == {*range(CLASSES)}
    assert {*batch.evidence.tolist()} == {*range(7)}


def test_one_word_of_the_keyword_task_has_a_class():
    batch = draw_keyword_task(50, 7, rng())
    for words, question, answer, evidence in zip(
        *(x.tolist() for x in batch), strict=True
    ):
        assert question == FILLERS
        assert words.pop(evidence) == CLASSES * FILLERS + answer
        assert all(w % CLASSES == 0 and w < CLASSES * FILLERS for w in words)
    assert batch.words.max() < WORDS


def test_the_output_is_that_of_the_weighted_states():
    torch.manual_seed(0)
    model = AttentionClassifier(Encoder(WORDS, 5, 7), width=3)
    batch = draw_question_task(4, 6, rng())
    logits, weights = model(batch.words, batch.question)
    states = model.encode(batch.words)
    context = torch.einsum("bs,bsm->bm", weights, states)
    torch.testing.assert_close(logits, model.output(context))
    by_hand = (
        torch.tanh(
            model.attention.query(model.question(batch.question))[:, None]
            + model.attention.key(states)
        )
        @ model.attention.v
    ).softmax(-1)
    torch.testing.assert_close(weights, by_hand)
