"""The tasks, the measures and the bookkeeping of chapter 8's recorded runs."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from attnbook.data.characters import encode_characters
from attnbook.models.attention_only import (
    HEAD,
    METHODS,
    AttentionOnlyTransformer,
)
from attnbook.positions.absolute import frequencies
from attnbook.training.losses import IGNORED_TARGET
from workshop.experiments.extrapolation import (
    SCALED,
    STEPS,
    TIMES,
    measure_scaled,
    resume_jobs,
)
from workshop.experiments.longer_sequences import (
    LENGTH,
    LONGEST,
    RATE,
    SIZE,
    SYMBOLS,
    draw_batch,
    draw_copying,
    draw_reading,
    measure_copying_error,
    measure_reading_loss,
    train,
)

RNG = torch.Generator().manual_seed(0)


def model_of(method, symbols=11, longest=32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AttentionOnlyTransformer(symbols, method, longest)


class Unigram(nn.Module):
    """Say each character as often as the training text has it."""

    def forward(self, text):
        numbers, symbols = encode_characters("train")
        counts = torch.bincount(numbers, minlength=symbols) + 1
        return (counts / counts.sum()).log().expand(*text.shape, symbols)


def test_the_chapter_states_the_settings_of_the_training():
    page = Path(__file__).parents[3] / "chapters/08_positions.md"
    text = " ".join(page.read_text("utf8").split())
    assert f"a learning rate that falls linearly from {RATE} to 0" in text
    copying, reading = (f"{STEPS[task]:,}" for task in ("copy", "text"))
    assert f"on {copying} batches for copying and {reading} for text" in text
    assert f"A batch has {SIZE} sequences" in text
    assert f"each is {LENGTH} characters long" in text


def test_copying_targets_follow_the_separator():
    text, wanted = draw_copying(3, 5, RNG)
    assert text.shape == wanted.shape == (3, 10)
    assert (text[:, 5] == SYMBOLS).all()
    assert (wanted[:, :5] == IGNORED_TARGET).all()
    assert torch.equal(wanted[:, 5:], text[:, :5])
    assert torch.equal(text[:, 6:], text[:, :4])
    for row in text[:, :5]:
        assert len(row.unique()) == 5


def test_copies_fit_the_longest_sequence():
    text, _ = draw_copying(1, LONGEST // 2, RNG)
    assert text.shape[1] == LONGEST
    assert LENGTH * TIMES[-1] == LONGEST


def test_a_model_that_copies_has_error_zero():
    class Copies(nn.Module):
        def forward(self, text):
            half = text.shape[1] // 2
            message = torch.zeros_like(text)
            message[:, half:] = text[:, :half]
            return nn.functional.one_hot(message, SYMBOLS + 1)

    class OneOff(Copies):
        def forward(self, text):
            return super().forward(text).roll(1, dims=1)

    assert measure_copying_error(Copies(), 64, count=16) == 0
    assert measure_copying_error(OneOff(), 64, count=16) == 1


def test_no_training_sequence_is_longer_than_the_length():
    rng = torch.Generator().manual_seed(0)
    lengths = {draw_batch("copy", rng)[0].shape[1] for _ in range(99)}
    assert max(lengths) == LENGTH
    assert min(lengths) == 8
    assert draw_batch("text", rng)[0].shape[1] == LENGTH


def test_the_reading_task_predicts_the_next_character():
    text, wanted = draw_reading(4, RNG)
    assert torch.equal(text[:, 1:], wanted[:, :-1])


def test_unknown_characters_have_one_number():
    train_text, symbols = encode_characters("train")
    test_text, same = encode_characters("test")
    assert same == symbols
    assert train_text.max() < symbols - 1
    assert test_text.max() < symbols


def test_the_same_characters_are_predicted_at_every_length():
    short, long = (measure_reading_loss(Unigram(), n, 16) for n in (LENGTH, LONGEST))
    assert short == pytest.approx(long)
    assert 2.5 < short < 3.5


@pytest.mark.parametrize("method", METHODS)
def test_no_model_attends_to_later_positions(method):
    model = model_of(method)
    text = torch.randint(11, (2, 13), generator=RNG)
    other = text.clone()
    other[:, 7:] = (other[:, 7:] + 1) % 11
    torch.testing.assert_close(model(text)[:, :7], model(other)[:, :7])
    assert not torch.allclose(model(text)[:, 7:], model(other)[:, 7:])


@pytest.mark.parametrize("method", METHODS)
def test_only_models_without_positional_encodings_ignore_the_order(method):
    model = model_of(method)
    with torch.no_grad():  # what is learned from zero is not zero
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=RNG))
    text = torch.tensor([[1, 2, 3, 4, 5, 6]])
    swapped = torch.tensor([[2, 1, 3, 4, 5, 6]])
    layer = model.layers[0]
    model.layers = nn.ModuleList([layer])  # a second sees through the mask
    message, other = model(text)[:, -1], model(swapped)[:, -1]
    assert torch.allclose(message, other, atol=1e-5) == (method == "none")


@pytest.mark.parametrize("method", METHODS)
def test_all_models_start_from_equal_weights_except_positions(method):
    ours = model_of(method).state_dict()
    for name, weight in model_of("none").state_dict().items():
        assert torch.equal(ours[name], weight)


@pytest.mark.parametrize("method", SCALED)
def test_a_factor_of_one_changes_nothing(method):
    model = model_of("rope")
    text = torch.randint(11, (2, 13), generator=RNG)
    before = model(text)
    model.rescale(*SCALED[method](1))
    torch.testing.assert_close(model(text), before)
    model.rescale(*SCALED[method](8))
    assert not torch.allclose(model(text), before)


def test_scaling_measures_every_method_at_every_length(monkeypatch):
    from workshop.experiments import extrapolation

    seen = []

    def measure(model, length):
        rotary = model.layers[0].attention
        seen.append((length, rotary.frequencies, rotary.factor))
        return float(length)

    monkeypatch.setitem(extrapolation.MEASURES, "copy", measure)
    found = measure_scaled("copy", model_of("rope"))
    assert found == {w: [64.0 * n for n in TIMES] for w in SCALED}
    at_eight = {n: (s, f) for n, s, f in seen if n == LONGEST}
    assert at_eight[LONGEST][1] > 1  # the last method is YaRN
    interpolated = seen[len(TIMES) - 1][1]
    torch.testing.assert_close(interpolated, frequencies(HEAD) / 8)


@pytest.mark.refusal
def test_unknown_tasks_and_methods_are_refused():
    with pytest.raises(ValueError, match="'rotary'"):
        model_of("rotary")
    with pytest.raises(ValueError, match="only a model with method 'rope'"):
        model_of("alibi").rescale(frequencies(HEAD))


def test_a_seed_trains_the_same_model_twice():
    first, again = (train("copy", "alibi", 3, 2) for _ in range(2))
    other = train("copy", "alibi", 4, 2)
    weights = [m.readout.weight for m in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_interrupted_recording_is_resumed(tmp_path):
    path, done = tmp_path / "deep" / "kept.json", []

    def run(name, seed):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append((name, seed))
        return [{"method": name, "seed": seed}]

    jobs = [("a", 0), ("b", 0), ("a", 1)]
    with pytest.raises(KeyboardInterrupt):
        resume_jobs(path, {"steps": 5}, jobs, run)
    assert len(json.loads(path.read_text())["rows"]) == 2
    done.clear()
    rows = resume_jobs(path, {"steps": 5}, jobs, run)
    assert done == [("a", 1)]
    assert rows == [{"method": n, "seed": s} for n, s in jobs]
    done.clear()
    with pytest.raises(KeyboardInterrupt):  # other settings begin anew
        resume_jobs(path, {"steps": 6}, jobs, run)
