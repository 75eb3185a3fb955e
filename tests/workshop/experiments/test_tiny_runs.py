"""Every experiment runs, at a tiny size, and its record can be read.

Models whose weights are downloaded are random ones of the same class.
"""

import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from attnbook import records
from attnbook.data import Splits, grammar, libreoffice
from attnbook.decoding.latent import LatentSizes
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder, RotaryAttention
from attnbook.training import run as training_run
from attnbook.training.tasks import TASKS, Task, load_task
from tiny_whisper import CONFIG, build
from workshop.experiments import (
    efficient,
    language_models,
    record,
    scoring,
    smollm2,
    smollm2_heads,
    speech,
)

pytestmark = pytest.mark.precision
record.find_experiments()
# What is small in each theme, beside seeds, numbers of steps and rounds.
TINY: dict[str, dict] = {
    "attention_explanation": {"TESTED": 12, "STEPS": {"question": 1, "keyword": 1}},
    "costs": {
        "LENGTHS": (8, 16),
        "LAYER": (1, 2, 16, 4),
        "BLOCK_STEPS": ((1, 8),),
        **{"MASK_WINDOW": 5, "MASK_LENGTHS": (16,)},
        **{"WINDOW": 5, "BLOCK": 8, "EFFICIENT_LENGTHS": (32,)},
        # Compiling takes a while, and needs what not every machine has.
        "shutil": SimpleNamespace(which=lambda name: None),
    },
    "decoding": {
        **{"PROMPT": 12, "COUNT": 3, "SHORTER": tuple(range(8)), "REPEATED": 8},
        **{"COPIED": 3, "MEGABYTES": 1, "CHUNK": 4, "PASSAGES": 1, "LENGTH": 24},
        **{"GROUP": 4, "RESIDUAL": 4, "DRAFT_COUNTS": (1, 2), "DRAFT_BLOCKS": 1},
        **{"PROMPTS": 1, "KEPT": 8, "SINKS": (0, 1), "POSITIONS": (8, 16)},
        **{"LITE": LatentSizes(8, 2, 4, 3, 2, 5), "LATENT_KEYS": 6},
        "LATENT_QUERIES": (1, 2),
        # transformers would need a model of its own size.
        "find_spec": lambda name: None,
    },
    "efficient": {
        **{"RATES": (1e-2,), "PAIRS": (4, 8), "TOKENS": 48},
        "RECALL": replace(efficient.RECALL, steps=2),
        "COPYING": replace(efficient.COPYING, steps=2),
        **{"RECALL_TESTED": 4, "COPY_TESTED": 16, "TEXT_TESTED": 2, "TEXT_BATCH": 2},
    },
    "emoji": {"BATCH": 4},
    "graphs": {},
    "head_alarms": {"REFERENCES": ("cmudict_heads_8_0",), "WORDS": 64},
    "heads": {
        **{"COUNTS": (1, 4), "CHOICE_WORDS": 4, "LENGTHS": (2, 4)},
    },
    "language_models": {
        **{"DEPTHS": (1,), "WARMUPS": (0.0,), "MEAN": 2, "STABILITY_EVERY": 2},
        "RECIPE": replace(language_models.RECIPE, steps=2),
        **{"STABILITY_RATES": (3e-3,), "LADDER_RATES": (3e-3,)},
    },
    "mistakes": {"EPOCHS": 1, "TRAINED": 60, "HELD_OUT": 590},
    "positions": {"TIMES": (1, 2), "STEPS": {"copy": 1, "text": 1}, "SIZE": 2},
    "runs": {"RATES": (2e-3,), "SIZES": (16,), "EVERY": 1, "EPOCHS": 1},
    "scaling": {
        **{"WIDTHS": (4,), "DRAWS": 1, "STEPS": 50, "TRAINED_WIDTHS": (16,)},
        "RECIPES": (("adam", 1e-3), ("sgd", 1.0)),
    },
    "scores_cost": {
        "SIZES": {"sentence": (2, 3, 5, 8, 4), "page": (2, 3, 5, 8, 4)},
        "SCORES": ("dot", "blocks"),
        "STEPS": {"dot": "grammar_luong_dot_0"},
    },
    "smollm2": {
        **{"LENGTHS": (9, 11), "EACH": 1, "LENGTH": 64, "PASSAGES": 1},
        **{"TRAINING": (350,), "BATCHES": 2},
        **{"MAP_SECTION": 0, "MAP_LENGTH": 64},
    },
    "smollm2_heads": {
        **{"EACH": 1, "SET_EACH": 1, "MEAN_EACH": 1, "SET_TEXTS": 1, "SET_LENGTH": 16},
        **{"SIZES": (1, 2), "SIZE": 2, "DRAWS": 1, "PATCHED": 2, "LOOKED_AT": 2},
        "NAMED": {"layer": 0, "head": 0, "kind": "induction"},
        **{"SEQUENCES": 2, "COUNT": 9, "DISTANCES": 4, "SYMBOLS": 100},
        **{"SINK_TEXTS": 2, "SINK_LENGTH": 16},
    },
    "speech": {
        **{"SIZE": 2, "TRAINED": 6, "DIGITS": (1, 2), "TESTED": 2, "COUNTS": (1, 4)},
        **{"SCORED": (4,), "EASY": 0.5, "LIMIT": 4, "SEQUENCES": 2, "HEARD_DIGITS": 2},
    },
    "vision": {
        **{"SIZES": (20, 40), "SHUFFLED_SIZES": (40,), "TRAINED": 20},
        "POOLING_TESTED": 20,
    },
}


def list_changes(theme):
    """Return what is changed in a module of experiments."""
    found = {}
    for name, value in vars(sys.modules[f"workshop.experiments.{theme}"]).items():
        if name.endswith("SEEDS") and isinstance(value, tuple | range):
            found[name] = (0,)
        if name.endswith(("STEPS", "ROUNDS")) and isinstance(value, int):
            found[name] = 2
    return found | TINY[theme]


class Words:
    """A tokenizer of words and digits."""

    def encode(self, text, **settings):
        numbers = [sum(map(ord, word)) % 100 + 20 for word in text.split()]
        return SimpleNamespace(ids=numbers)

    def decode(self, ids):
        return " ".join(map(str, ids))


def build_smollm2(attention=RotaryAttention):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = DecoderConfig(
            symbols=150, width=24, heads=6, groups=3, hidden=8, blocks=2
        )
        return ModernDecoder(config, attention).eval()


def build_whisper():
    heads = {"heads": 6, "blocks": 4, "positions": 650}
    return build(replace(CONFIG, **heads, tokens=50, symbols=50370))


def read_tiny_record(name):
    """Return scores of the heads of the tiny model in place of the recorded."""
    if name != "smollm2_heads":
        return records.read_record(name)
    scores = torch.rand(2, 2, 6, generator=torch.Generator().manual_seed(0)).tolist()
    kinds = dict(zip(("induction", "previous"), scores, strict=True))
    return {"results": {"scores": kinds}}


def shorten(splits, test):
    """Return evenly spread pairs of each split: short and long ones."""
    parts = ((splits.train, 96), (splits.valid, 16), (splits.test, test))
    return Splits(*(x[:: max(1, len(x) // n)][:n] for x, n in parts))


class ShortTask(Task):
    """A task whose outputs are short."""

    def generate(self, model, pairs, limit=8):
        return super().generate(model, pairs, limit)


@pytest.fixture(scope="module")
def tasks():
    """Return the tasks by name, with all of their symbols and few pairs."""
    found = {}
    for name, backwards in product(TASKS, (False, True)):
        made = load_task(name, backwards)
        symbols = {"sources": made.sources, "targets": made.targets}
        made = ShortTask(shorten(made.splits, 24), backwards)
        vars(made).update(symbols)
        found[name, backwards] = made
    return found


@pytest.fixture
def tiny(monkeypatch, tasks):
    """Make every experiment small."""
    for theme in TINY:
        for name, value in list_changes(theme).items():
            monkeypatch.setattr(f"workshop.experiments.{theme}.{name}", value)
    long, texts = grammar.load_long()[:20], shorten(libreoffice.load_text(), 24)
    monkeypatch.setattr(grammar, "load_long", lambda: long)
    functions = {"load_text": lambda: texts, "join_pieces": libreoffice.join_pieces}
    monkeypatch.setattr(scoring, "libreoffice", SimpleNamespace(**functions))
    search = scoring.beam_search
    monkeypatch.setattr(
        scoring,
        "beam_search",
        lambda model, source, size, limit, **more: search(model, source, 2, 4, **more),
    )
    monkeypatch.setattr(
        training_run, "load_task", lambda name, backwards=False: tasks[name, backwards]
    )
    monkeypatch.setattr(smollm2, "load_smollm2", build_smollm2)
    monkeypatch.setattr(smollm2, "load_smollm2_tokenizer", Words)
    monkeypatch.setattr(smollm2_heads, "read_record", read_tiny_record)
    monkeypatch.setattr(speech, "load_whisper", build_whisper)
    monkeypatch.setattr(speech, "load_whisper_tokenizer", Words)


def check_record(name, folder):
    """Compare a tiny run's record with the fields of the stored one."""
    made, stored = records.read_record(name, folder), records.read_record(name)
    assert {*stored} <= {*made}
    if isinstance(made["results"], dict):
        # Some are named after sizes.
        ours, theirs = (
            {key for key in x["results"] if not any(map(str.isdigit, key))}
            for x in (made, stored)
        )
        assert ours == theirs


# `minilm_maps` reads a file that is downloaded by hand.
@pytest.mark.parametrize("name", sorted(record.EXPERIMENTS.keys() - {"minilm_maps"}))
def test_an_experiment_runs(name, tiny, records_of_the_test):
    record.EXPERIMENTS[name]()
    check_record(name, records_of_the_test)


def list_different_runs():
    """Return the training runs that differ in more than seed and amount."""
    found = {}
    for name, run in record.RUNS.items():
        recipe = replace(run.recipe, seed=0, epochs=1)
        found.setdefault(replace(run, recipe=recipe, every=1, ship=True), name)
    return {name: run for run, name in found.items()}


@pytest.mark.parametrize(("name", "run"), list_different_runs().items())
def test_a_training_run_is_recorded(name, run, tiny, records_of_the_test, monkeypatch):
    monkeypatch.setitem(record.RUNS, name, run)
    record.record_run(name, progress=False)
    check_record(name, records_of_the_test)
    assert (records_of_the_test / f"{name}.safetensors").exists()
