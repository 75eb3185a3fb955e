"""The training loop: batches, steps, epochs."""

import pytest
import torch

from attnbook.data.vocabulary import END, PAD, START
from attnbook.training.loop import (
    Recipe,
    Trainer,
    compute_held_out_loss,
    compute_rate_factor,
    draw_batches,
    make_batch,
    optimize,
)
from small_models import make_model

PAIRS = [([4 + (i + j) % 7 for j in range(1 + i % 5)],) * 2 for i in range(40)]


def make_trainer(seed=0, epochs=3, **more):
    recipe = Recipe(epochs, size=8, rate=1e-2, seed=seed, **more)
    model = make_model(attention=True)
    model.decoder.drop.p = 0.5  # so that the generator's state matters
    return Trainer(model, PAIRS, PAIRS[:10], recipe)


def numbers(history):
    return [(h["train_loss"], h["valid_loss"]) for h in history]


def test_a_batch_is_shifted_by_one():
    made = make_batch([([5, 6], [7, 8, 9]), ([4], [10])])
    assert made.source.tolist() == [[5, 6], [4, PAD]]
    assert made.lengths.tolist() == [2, 1]
    assert made.previous.tolist() == [[START, 7, 8, 9], [START, 10, PAD, PAD]]
    assert made.target.tolist() == [[7, 8, 9, END], [10, END, PAD, PAD]]


def test_batches_hold_every_pair_once_in_the_seeds_order():
    pairs = [([i], [i]) for i in range(101)]
    made = draw_batches(pairs, 8, seed=1)
    assert sorted(p[0][0] for b in made for p in b) == list(range(101))
    assert made == draw_batches(pairs, 8, seed=1) != draw_batches(pairs, 8, seed=2)


def test_a_step_uses_its_rate_and_is_reported_before_the_update():
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    drawn, seen = iter([1.0, 3.0]), []
    optimize(
        torch.optim.SGD([weight], lr=9.0),
        drawn,
        lambda x: (x * weight).sum(),
        rate=lambda step: [0.5, 0.25][step],
        callbacks=[lambda *found: seen.append((*found, weight.item()))],
    )
    assert seen == [(0, 2.0, 2.0), (1, 4.5, 1.5)]
    assert weight.item() == 1.5 - 0.25 * 3


def test_the_norm_of_the_gradient_is_clipped():
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimize(
        torch.optim.SGD(weights, lr=1.0),
        [torch.full((2,), 3.0)],
        lambda x: sum((x * w).sum() for w in weights),
        clip=1.0,
    )
    torch.testing.assert_close(torch.cat(weights).norm(), torch.tensor(1.0))


def test_training_learns_and_keeps_the_weights_of_the_best_epoch():
    trainer = make_trainer(epochs=30)
    losses = [h["valid_loss"] for h in trainer.run(progress=False)]
    assert losses[-1] < 0.6 * losses[0]
    assert compute_held_out_loss(trainer.model, PAIRS[:10]) == pytest.approx(
        min(losses)
    )


def test_training_stops_when_the_held_out_loss_has_stopped_falling():
    trainer = make_trainer(epochs=9, patience=2)
    trainer.history = [{"valid_loss": x} for x in (3.0, 1.0, 2.0)]
    assert not trainer.is_stalled()
    trainer.history.append({"valid_loss": 1.0})
    assert trainer.is_stalled()


def test_training_repeats_itself_and_leaves_the_global_generator_alone(capsys):
    torch.manual_seed(7)
    wanted = torch.rand(3)
    first, second, third = make_trainer(), make_trainer(), make_trainer(seed=1)
    torch.manual_seed(7)
    history = first.run(progress=False)
    assert torch.equal(torch.rand(3), wanted)
    assert capsys.readouterr().err == ""
    assert numbers(history) == numbers(second.run(progress=True))
    assert "epoch 3" in capsys.readouterr().err
    assert numbers(history) != numbers(third.run(progress=False))


def test_the_held_out_loss_is_the_mean_of_all_symbols():
    model, pairs = make_model(), [([4, 5], [6]), ([7], [8, 9, 4, 5])]
    each = [compute_held_out_loss(model, [pair]) for pair in pairs]
    assert compute_held_out_loss(model, pairs[:1] * 2) == pytest.approx(each[0])
    wanted = (2 * each[0] + 5 * each[1]) / 7  # the end of each included
    assert compute_held_out_loss(model, pairs, size=1) == pytest.approx(wanted)


def test_the_rate_rises_then_falls():
    rates = [compute_rate_factor(i / 100, 0.1) for i in range(101)]
    assert rates[0] == 0
    assert rates[10] == 1
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0)


@pytest.mark.refusal
def test_nothing_to_train_on_is_refused():
    with pytest.raises(ValueError, match="0 to train on and 40 held out"):
        Trainer(make_model(), [], PAIRS, Recipe(epochs=1))
