"""Tests of the studies of video: scores on tables whose answer is known."""

import pytest
import torch

from attnbook.data.moving_digits import draw_which_direction
from attnbook.models.video_transformer import ClipClassifier
from attnbook.records import read_record
from workshop.experiments import moving_digits as pooling
from workshop.experiments import space_time_cost as cost
from workshop.experiments import space_time_motion as motion

T, N = motion.FRAMES, (motion.SIZE // motion.PATCH) ** 2


def draw_digit_patches():
    """Return for three clips of known motion which patches show the digit."""
    rng = torch.Generator().manual_seed(0)
    clips = draw_which_direction(torch.ones(5, 7, 7), 3, rng, T, motion.SIZE)
    return motion.find_digit_patches(clips)


def test_a_patch_shows_the_digit_if_half_of_it_does():
    rng = torch.Generator().manual_seed(0)
    clips = draw_which_direction(torch.ones(5, 7, 7), 3, rng, T, motion.SIZE)
    on = motion.find_digit_patches(clips)
    side = motion.PATCH
    for b in range(3):
        for t in range(T):
            for n in range(N):
                row, column = side * (n // 3), side * (n % 3)
                patch = clips.inside[b, t, row : row + side, column:][:, :side]
                assert on[b, t, n] == (patch.double().mean() >= 0.5)


def test_equal_weights_have_the_chance_level():
    on = draw_digit_patches()
    table = torch.full((3, T, N, T, N), 1 / (T * N))
    found = motion.measure_neighbors(table, on)
    assert found["mass"] == pytest.approx(found["chance"], rel=1e-5)
    profile = motion.measure_profile(table, on)
    assert profile["mass"] == pytest.approx(profile["chance"], rel=1e-5)


def test_equal_weights_on_the_digit_have_their_level():
    on = draw_digit_patches()
    row = on / on.sum((1, 2), keepdim=True)  # (B, T, N)
    table = row[:, None, None].expand(-1, T, N, -1, -1)
    found = motion.measure_neighbors(table, on)
    assert found["mass"] == pytest.approx(found["digit"], rel=1e-5)
    profile = motion.measure_profile(table, on)
    assert profile["mass"] == pytest.approx(profile["digit"], rel=1e-5)


def test_weight_on_the_next_frame_is_found_at_its_distance():
    """Every query gives all its weight to the digit one frame later."""
    on = draw_digit_patches()
    row = on / on.sum(2, keepdim=True)
    table = torch.zeros(3, T, N, T, N)
    for t in range(T - 1):
        table[:, t, :, t + 1] = row[:, t + 1, None]
    profile = motion.measure_profile(table, on)["mass"]
    wanted = [float(shift == 1) for shift in range(1 - T, T)]
    assert profile == pytest.approx(wanted, abs=1e-6)
    mass = motion.measure_neighbors(table, on)["mass"]
    queries = on[:, : T - 1].sum() / on.sum()
    assert mass == pytest.approx(float(queries), rel=1e-5)


@pytest.mark.parametrize("kind", motion.KINDS)
def test_the_rows_of_every_table_sum_to_1(kind):
    rng = torch.Generator().manual_seed(0)
    clips = motion.draw("test", 4, rng)
    for table in motion.read_tables(motion.build_model(kind, 0), clips).values():
        assert table.shape == (4, T, N, T, N)
        torch.testing.assert_close(table.sum((3, 4)), torch.ones(4, T, N))


def test_the_factorized_table_is_the_product_of_both_attentions():
    clips = motion.draw("test", 2, torch.Generator().manual_seed(0))
    model = motion.build_model("factorized", 0)
    (space, time), *_ = model(clips.frames)[1]
    table = motion.read_tables(model, clips)["time, space"]
    for t, n, s, m in ((0, 1, 2, 3), (5, 8, 5, 0), (3, 3, 3, 3)):
        over_time = time.unflatten(0, (2, N)).mean(2)[1, n, t, s]
        over_space = space.unflatten(0, (2, T)).mean(2)[1, s, n, m]
        torch.testing.assert_close(table[1, t, n, s, m], over_time * over_space)


def test_shuffled_frames_are_the_same_frames():
    frames = torch.arange(6.0)[:, None, None].expand(40, 6, 1, 1)
    mixed = motion.shuffle_frames(frames, torch.Generator().manual_seed(0))
    assert torch.equal(mixed.sort(1).values, frames)
    assert not torch.equal(mixed, frames)


class FirstPixel(torch.nn.Module):
    """The features of a frame are those of the class in its first pixel."""

    def forward(self, frames):
        return torch.eye(10)[frames[..., 0, 0].long()]


class KnownWeights(torch.nn.Module):
    """All weight on the second frame."""

    def forward(self, features):
        return torch.eye(features.shape[1])[[1] * len(features)]


def test_a_clip_classifier_is_scored_on_its_readable_frames():
    model = ClipClassifier(FirstPixel(), KnownWeights(), 10, 10)
    with torch.no_grad():
        model.output.weight.copy_(torch.eye(10))
        model.output.bias.zero_()
    clips = pooling.draw("test", 6, torch.Generator().manual_seed(0))
    frames = torch.zeros(6, 3, 2, 2)
    frames[:4, 1, 0, 0] = clips.label[:4].float()
    frames[4:, 1, 0, 0] = (clips.label[4:].float() + 1) % 10
    readable = torch.tensor([[True, True, False]] * 2 + [[True, False, True]] * 4)
    found = pooling.score(model, clips._replace(frames=frames, readable=readable))
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["mass"] == pytest.approx(2 / 6)
    assert found["largest_readable"] == pytest.approx(2 / 6)
    assert found["accuracy_last_readable"] == pytest.approx(2 / 4)
    assert found["accuracy_last_hidden"] == 1


def test_studies_run_with_a_few_steps(monkeypatch):
    for module in (pooling, motion):
        monkeypatch.setattr(module, "STEPS", 2)
        monkeypatch.setattr(module, "TESTED", 30)
    monkeypatch.setattr(motion, "SELECTED", 20)
    clips = pooling.draw_test_clips()
    row, weights = pooling.run_method("attention", 0, clips)
    again, _ = pooling.run_method("attention", 0, clips)
    assert row == again and weights.shape == (pooling.SHOWN, pooling.FRAMES)
    assert row != pooling.run_method("attention", 1, clips)[0]
    found = motion.run_kind("factorized", 0)
    assert len(found["trained"]["profile"]["mass"]) == 2 * T - 1
    monkeypatch.setattr(cost, "ROUNDS", 1)
    measured = cost.measure_length(2)
    assert measured["scores"] == {"joint": 128**2, "factorized": 2 * 64 * 66}


def test_the_recorded_models_of_motion_differ_in_their_attention_alone():
    rows = read_record("space_time_motion")["results"]["rows"]
    assert {(x["kind"], x["seed"]) for x in rows} == {
        (kind, seed) for kind in motion.KINDS for seed in motion.SEEDS
    }
    assert len({x["parameters"] for x in rows}) == 1
    for row in rows:
        if row["kind"] == "space only":
            assert row["trained"]["neighbors"]["mass"] == 0


def test_the_recorded_poolings_have_the_chance_level_of_the_task():
    recorded = read_record("moving_digits")["results"]
    assert recorded["chance"] == pooling.READABLE / pooling.FRAMES
    rows = recorded["rows"]
    assert {x["method"] for x in rows} == {*pooling.METHODS}
    for row in rows:
        if row["method"] == "mean":
            assert row["mass"] == pytest.approx(recorded["chance"])


def test_the_recorded_scores_are_the_counted_ones():
    found = read_record("space_time_cost")["results"]
    assert [*found] == [str(n) for n in cost.LENGTHS]
    for frames, row in found.items():
        tokens = int(frames) * cost.PATCHES
        assert row["scores"]["joint"] == tokens**2
        both = tokens * (int(frames) + cost.PATCHES)
        assert row["scores"]["factorized"] == both
