"""Learning rate and batch size of the recurrent and the Transformer speller.

Both models see as many words: the budget is the same, whatever the batch.

Source: larger batches for Transformers on such tasks: Wu et al. (2021),
    https://arxiv.org/abs/2005.10213; the experiments are ours.
"""

from dataclasses import replace
from itertools import product

from attnbook.training.loop import Trainer
from attnbook.training.run import Run, change_seed
from attnbook.training.scoring import make_validation_metrics
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.runs import SPELL, SPELL_BLOCKS

MODELS = {"Bahdanau": SPELL, "Transformer": SPELL_BLOCKS}
RATES, SIZES = (5e-4, 2e-3, 8e-3), (16, 64, 256)
EVERY, EPOCHS, MORE_SEEDS = 8, 3, (1,)
SETTINGS = {"every": EVERY, "epochs": EPOCHS}


def train_and_score(run: Run, rate: float, size: int, seed: int) -> dict:
    """Train once on the budget; return loss and errors on held-out words."""
    recipe = replace(run.recipe, epochs=EPOCHS, rate=rate, size=size)
    run = change_seed(replace(run, recipe=recipe), seed, every=EVERY)
    data, model = run.data(), run.model().to(get_device())
    trainer = Trainer(
        model,
        data.encode(data.splits.train[:: run.every]),
        data.encode(data.splits.valid),
        run.recipe,
    )
    history = trainer.run(progress=False)
    return {
        "rate": rate,
        "size": size,
        "seed": seed,
        "valid_loss": min(epoch["valid_loss"] for epoch in history),
        **make_validation_metrics(run.task, data)(model),
    }


def sweep(name: str) -> dict:
    """Train a model with every setting, and again with the best one."""
    run = MODELS[name]
    rows = [train_and_score(run, r, n, 0) for r, n in product(RATES, SIZES)]
    best = min(rows, key=lambda row: row["valid_loss"])
    rows += [
        train_and_score(run, best["rate"], best["size"], seed) for seed in MORE_SEEDS
    ]
    return {"rows": rows, "model": name}


@experiment()
@recorded(seeds=(0, *MORE_SEEDS), **SETTINGS)
def sweep_bahdanau() -> dict:
    """Record the recurrent speller with several rates and batch sizes."""
    return sweep("Bahdanau")


@experiment()
@recorded(seeds=(0, *MORE_SEEDS), **SETTINGS)
def sweep_transformer() -> dict:
    """Record the Transformer speller with several rates and batch sizes."""
    return sweep("Transformer")
