"""The two tests of a chapter's answers: right ones are accepted, wrong ones named."""

import pytest


def make_tests(right, wrong):
    """Return a test that accepts answers, and one that refuses them."""

    @pytest.mark.precision
    @pytest.mark.parametrize(
        ("check", "answer"), [(check, x) for check, xs in right.items() for x in xs]
    )
    def test_right_answers(check, answer):
        verdict = check(answer)
        assert verdict, verdict

    @pytest.mark.precision
    @pytest.mark.parametrize(("check", "mistake", "answer"), wrong)
    def test_wrong_answers(check, mistake, answer):
        verdict = check(answer)
        assert verdict.mark == "✗"
        assert not mistake or verdict.mistake == mistake

    return test_right_answers, test_wrong_answers
