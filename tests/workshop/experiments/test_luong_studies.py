"""The experiments of chapter 3: rotated keys, and mistakes in a decoder."""

import torch

from attnbook.attention.luong import DotScore
from workshop.experiments import key_rotation, luong_mistakes
from workshop.experiments.decoder_mistakes import draw_task


def test_a_matrix_that_undoes_the_rotation_gives_dot_scores():
    rng = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 2, 3, 8, generator=rng)
    rotation = key_rotation.draw_rotation(8, seed=0)
    dot, score = DotScore(8, 8), key_rotation.RotatedDot(8, rotation)
    wanted = dot(query, dot.key(key))
    assert not torch.allclose(score(query, score.key(key)), wanted, atol=1e-3)
    score.matrix.copy_(rotation.T)
    assert torch.allclose(score(query, score.key(key)), wanted, atol=1e-5)
    product = score.matrix @ score.rotation
    assert abs(key_rotation.compute_closeness(3 * product) - 1) < 1e-5


def test_loading_weights_does_not_change_the_rotation_that_was_given():
    rotation = key_rotation.draw_rotation(8, seed=0)
    kept = rotation.clone()
    score = key_rotation.RotatedDot(8, rotation)
    score.load_state_dict(key_rotation.RotatedDot(8).state_dict())
    assert torch.equal(rotation, kept)


def test_every_mistake_changes_what_its_decoder_computes():
    data = draw_task()
    source = torch.tensor([[4, 5, 6, 0, 0, 0, 0, 0], [7, 8, 9, 10, 4, 5, 6, 7]])
    previous = torch.tensor([[1, 4, 5, 6, 7, 8, 9, 4]] * 2)
    lengths = torch.tensor([3, 8])
    logits = {}
    for name, variant in luong_mistakes.DECODERS.items():
        model = luong_mistakes.build_model(data, variant, seed=0)
        decoder, memory = model.decoder, model.encoder(source, lengths)
        state, steps = decoder.start(memory), []
        for word in previous.unbind(1):
            step, state, _ = decoder.step(word, state, memory)
            steps.append(step)
        trained = decoder(previous, memory).logits
        logits[name] = torch.cat([trained, torch.stack(steps, 1)])
    for name, variant in luong_mistakes.DECODERS.items():
        if variant.right:
            right = logits[variant.right]
            assert not torch.allclose(logits[name], right, atol=1e-4), name
