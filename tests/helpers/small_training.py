"""A short training run of a small encoder-decoder."""

from attnbook.training.loop import Recipe, Trainer
from small_models import make_model

PAIRS = [([4 + (i + j) % 7 for j in range(1 + i % 5)],) * 2 for i in range(40)]


def make_trainer(seed=0, epochs=3, **more):
    recipe = Recipe(epochs, size=8, rate=1e-2, seed=seed, **more)
    model = make_model(attention=True)
    model.decoder.drop.p = 0.5  # so that the generator's state matters
    return Trainer(model, PAIRS, PAIRS[:10], recipe)
