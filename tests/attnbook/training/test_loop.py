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
    save_checkpoint,
)
from small_models import make_model
from small_training import PAIRS, make_trainer


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
    assert made == draw_batches(pairs, 8, seed=1)
    assert made != draw_batches(pairs, 8, seed=2)


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


def test_training_learns():
    history = make_trainer(epochs=40).run(progress=False)
    assert history[-1]["valid_loss"] < 0.5 * history[0]["valid_loss"]


def test_training_repeats_itself():
    first = make_trainer().run(progress=False)
    assert numbers(first) == numbers(make_trainer().run(progress=False))
    assert numbers(first) != numbers(make_trainer(seed=1).run(progress=False))


def test_the_global_generator_is_left_alone():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    made = make_trainer()
    torch.manual_seed(7)
    made.run(progress=False)
    assert torch.equal(torch.rand(3), wanted)


def test_a_resumed_run_equals_an_uninterrupted_run(tmp_path):
    path = tmp_path / "run.safetensors"
    whole = make_trainer()
    whole.run(progress=False)
    first = make_trainer()
    first.run_epoch(progress=False)
    save_checkpoint(first, path)
    second = make_trainer()
    history = second.run(path, progress=False)
    assert numbers(history) == numbers(whole.history)
    for ours, theirs in zip(
        second.model.parameters(), whole.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_the_weights_kept_are_those_of_the_best_epoch():
    made = make_trainer()
    made.run(progress=False)
    best = min(h["valid_loss"] for h in made.history)
    assert compute_held_out_loss(made.model, PAIRS[:10]) == pytest.approx(best)


def test_the_rate_rises_then_falls():
    rates = [compute_rate_factor(i / 100, 0.1) for i in range(101)]
    assert rates[0] == 0
    assert rates[10] == 1
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0)


@pytest.mark.refusal
def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    first = make_trainer()
    first.run_epoch(progress=False)
    save_checkpoint(first, path)
    with pytest.raises(ValueError, match=r"'seed': 0.*'seed': 1"):
        make_trainer(seed=1).run(path, progress=False)


@pytest.mark.refusal
def test_nothing_to_train_on_is_refused():
    with pytest.raises(ValueError, match="0 to train on and 40 held out"):
        Trainer(make_model(), [], PAIRS, Recipe(epochs=1))
