"""The recorded training runs of the chapters: what is trained, and how."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from attnbook.training.loop import Recipe
from attnbook.training.run import Run
from workshop.experiments import record
from workshop.experiments.record import recorded, register, sweep, train_run
from workshop.experiments.scoring import score_sequences


def change_seed(run: Run, seed: int, **changes) -> Run:
    return replace(run, recipe=replace(run.recipe, seed=seed), **changes)


def repeat(
    name: str, run: Run, seeds: Iterable[int] = range(3), ship: Collection[int] = ()
) -> dict[str, Run]:
    """Return a run with every seed; `ship` has those whose weights are stored."""
    return {f"{name}_{s}": change_seed(run, s, ship=s in ship) for s in seeds}


# Word -> phoneme. The decoder without attention is wider, so that both models
# have as many parameters; the run's record says how many.
SPELL = Run("cmudict", True, Recipe(epochs=7, size=64, rate=2e-3))
SPELL_FIXED = replace(SPELL, attention=False, decoder=200)
ONE_WAY = replace(
    SPELL_FIXED, directions=1, encoder=192, recipe=replace(SPELL.recipe, epochs=2)
)
# English -> French, subword pieces.
HELP = Run(
    "libreoffice",
    True,
    Recipe(epochs=5, size=64, rate=2e-3),
    embedding=96,
    encoder=128,
    decoder=256,
    readout=96,
    dropout=0.2,
)
HELP_FIXED = replace(HELP, attention=False, decoder=276)
# English -> French, the small grammar with known alignments.
TALK = Run(
    "grammar",
    True,
    Recipe(epochs=6, size=64, rate=3e-3),
    encoder=64,
    decoder=128,
    readout=48,
    ship=True,
)
TALK_FIXED = replace(TALK, attention=False, decoder=136)
# Chapter 3: one factor at a time, from a general score that looks at all of the
# memory, after the step, and feeds nothing back.
LUONG = {"after": True, "score": "general"}
SHORT = replace(SPELL, recipe=replace(SPELL.recipe, epochs=2), **LUONG)
SHORT_TALK = replace(TALK, ship=False, **LUONG)
VARIANTS = {
    "dot": {"score": "dot"},
    "scaled_dot": {"score": "scaled_dot"},
    "general": {},
    "concat": {"score": "concat"},
    "location": {"score": "location"},
    "feeding": {"feeding": True},
    "monotonic": {"window": "monotonic", "reach": 3},
    "predictive": {"window": "predictive", "reach": 3},
}
# The maps of the chapter are drawn with these models' weights.
DRAWN = ("general", "location", "predictive", "monotonic")
LUONG_RUNS = {
    "libreoffice_luong_dot_0": replace(HELP, after=True, score="dot"),
    **repeat("cmudict_luong_general", SHORT),
}
for variant, changes in VARIANTS.items():
    LUONG_RUNS |= repeat(
        f"grammar_luong_{variant}",
        replace(SHORT_TALK, **changes),
        ship=[0] if variant in DRAWN else [],
    )
# On sentences longer than those trained on, the first three seeds of both scores
# differ widely; chapter 3 compares six of each there.
for score in ("dot", "general"):
    run = replace(SHORT_TALK, score=score)
    LUONG_RUNS |= repeat(f"grammar_further_{score}", run, (3, 4, 5))
# Chapter 6: as many parameters whatever the number of heads.
HEADS_RUNS = {}
for heads in (1, 4, 8, 16):
    run, ship = replace(SHORT, heads=heads), range(3 if heads == 8 else 0)
    HEADS_RUNS |= repeat(f"cmudict_heads_{heads}", run, ship=ship)
# Chapter 9: the leaderboard. Chapters 1 and 2 have no attention and Bahdanau's.
BLOCKS = {"after": False, "score": "additive", "blocks": 2, "heads": 4}
SPELL_BLOCKS = replace(SPELL, embedding=88, hidden=352, **BLOCKS)
TALK_BLOCKS = replace(TALK, embedding=64, hidden=256, **BLOCKS)
# A recurrent encoder and decoder, chapter 6's heads between them.
HYBRID = replace(SPELL, encoder=92, decoder=184, heads=4, **LUONG)
SPELL_LUONG = replace(SPELL, decoder=220, **LUONG)
LONGER = replace(SPELL.recipe, epochs=14)
LEADER_RUNS = {
    **repeat("cmudict_luong", SPELL_LUONG, range(2)),
    **repeat("cmudict_hybrid", HYBRID, range(2)),
    **repeat("cmudict_transformer", SPELL_BLOCKS, ship=[0]),
    # More time, for chapter 2's model and the Transformer.
    "cmudict_attention_twice_0": replace(SPELL, recipe=LONGER),
    "cmudict_transformer_twice_0": replace(SPELL_BLOCKS, recipe=LONGER),
    "libreoffice_transformer_0": replace(HELP, embedding=132, hidden=528, **BLOCKS),
    **repeat("grammar_transformer", TALK_BLOCKS, ship=[0]),
}

RUNS = {
    **repeat("cmudict_attention", SPELL, ship=[0]),
    **repeat("cmudict_fixed", SPELL_FIXED, ship=[0]),
    "libreoffice_attention_0": HELP,
    "libreoffice_fixed_0": HELP_FIXED,
    **repeat("grammar_attention", TALK, ship=range(3)),
    "grammar_fixed_0": TALK_FIXED,
    # One direction only, the word as it is or reversed, in fewer epochs.
    **repeat("cmudict_forward", ONE_WAY, range(2)),
    **repeat("cmudict_backward", replace(ONE_WAY, backwards=True), range(2)),
    **LUONG_RUNS,
    **HEADS_RUNS,
    **LEADER_RUNS,
}
for name, run in RUNS.items():
    register(name, run, record.RUNS)


MODELS = {"Bahdanau": SPELL, "Transformer": SPELL_BLOCKS}
RATES, SIZES = (5e-4, 2e-3, 8e-3), (16, 64, 256)
EVERY, EPOCHS, MORE_SEEDS = 8, 3, (1,)
SETTINGS = {"every": EVERY, "epochs": EPOCHS}


def train_and_score(run: Run, rate: float, size: int, seed: int) -> dict:
    recipe = replace(run.recipe, epochs=EPOCHS, rate=rate, size=size)
    run = change_seed(replace(run, recipe=recipe), seed, every=EVERY)
    data, model, history = train_run(run)
    found = score_sequences(data, model, data.splits.valid[:1000])
    return {
        "valid_loss": min(epoch["valid_loss"] for epoch in history),
        "valid_sequence_error": found["sequence_error"],
    }


def sweep_speller(name: str) -> dict:
    train = partial(train_and_score, MODELS[name])
    rows = sweep(train, rate=RATES, size=SIZES, seed=(0,))
    best = min(rows, key=lambda row: row["valid_loss"])
    again = {"rate": (best["rate"],), "size": (best["size"],)}
    rows += sweep(train, **again, seed=MORE_SEEDS)
    return {"rows": rows}


@recorded(seeds=(0, *MORE_SEEDS), **SETTINGS)
def sweep_bahdanau() -> dict:
    """Record the recurrent speller with several rates and batch sizes.

    Both models see as many words: the budget is the same, whatever the batch.

    Source: larger batches for Transformers on such tasks: Wu et al. (2021),
        https://arxiv.org/abs/2005.10213; the experiments are ours.
    """
    return sweep_speller("Bahdanau")


@recorded(seeds=(0, *MORE_SEEDS), **SETTINGS)
def sweep_transformer() -> dict:
    """Record the Transformer speller with several rates and batch sizes."""
    return sweep_speller("Transformer")
