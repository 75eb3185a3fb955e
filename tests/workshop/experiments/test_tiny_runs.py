"""Every experiment runs, at a tiny size, and its record can be read.

Models whose weights are downloaded are random ones of the same class.
"""

import string
import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from attnbook import records
from attnbook.data import Splits, grammar, libreoffice
from attnbook.models.modern_block import RotaryAttention
from attnbook.models.modern_decoder import DecoderConfig, ModernDecoder
from attnbook.training import run as training_run
from attnbook.training.tasks import TASKS, Task, load_task
from tiny_whisper import CONFIG, build
from workshop.experiments import (
    efficient,
    language_models,
    minilm,
    record,
    registry,
    scoring,
    smollm2,
    whisper,
)

pytestmark = pytest.mark.precision
NAMES = registry.find_experiments()
# The sizes and numbers of steps of each theme.
TINY = {
    "alignment": {"SEEDS": (0,)},
    "attention_explanation": {
        "SEEDS": (0,),
        "TESTED": 12,
        "STEPS": {"question": 1, "keyword": 1},
    },
    "costs": {
        "ROUNDS": 1,
        "ROWS": 4,
        "LENGTHS": (8, 16),
        "LAYER": (1, 2, 16, 4),
        "BLOCK_STEPS": ((1, 8),),
    },
    "efficient": {
        "RATES": (1e-2,),
        "SEEDS": (0, 1),
        "PAIRS": (4, 8),
        "TOKENS": 48,
        "RECALL": replace(efficient.RECALL, steps=2),
        "COPYING": replace(efficient.COPYING, steps=2),
        "RECALL_TESTED": 4,
        "COPY_TESTED": 16,
        "TEXT_TESTED": 2,
        "TEXT_BATCH": 2,
        "TEXT_STEPS": 2,
    },
    "emoji": {
        "SEEDS": (0,),
        "STEPS": 2,
        "GRID_STEPS": 2,
        "BATCH": 4,
        "GRID_BATCH": 4,
        "DRAWN": 8,
        "TESTED": 8,
    },
    "graphs": {
        "TASK_SEEDS": (0,),
        "LOOKUP_STEPS": 2,
        "GRAPHS": 2,
        "TESTED": 2,
        "HELP_SEEDS": (0,),
        "HELP_STEPS": 1,
    },
    "head_alarms": {
        "SEEDS": (0,),
        "REFERENCES": ("cmudict_heads_8_0",),
        "WORDS": 64,
    },
    "heads": {
        "SEEDS": (0,),
        "STEPS": 2,
        "READOUT_STEPS": 2,
        "COUNTS": (1, 4),
        "CHOICE_WORDS": 4,
    },
    "images": {
        "STEPS": 2,
        "SEEDS": (0,),
        "SIZES": (20, 40),
        "SHUFFLED_SIZES": (40,),
        "PLACE_STEPS": 2,
        "TRAINED": 20,
    },
    "language_models": {
        "SEEDS": (0,),
        "DEPTHS": (1,),
        "WARMUPS": (0.0,),
        "RECIPE": replace(language_models.RECIPE, steps=2),
        "NORM_STEPS": 2,
        "MEAN": 2,
        "CURVE_EVERY": 2,
        "STABILITY_RATES": (3e-3,),
        "STABILITY_STEPS": 2,
        "STABILITY_EVERY": 2,
        "LADDER_RATES": (3e-3,),
        "LADDER_STEPS": 1,
    },
    "layer_costs": {
        "POSITION_BATCH": 1,
        "POSITION_LENGTHS": (8, 16),
        "POSITION_ROUNDS": 1,
        "CLIP_LENGTHS": (1, 2),
        "CLIP_ROUNDS": 1,
    },
    "length_costs": {
        "MASK_WINDOW": 5,
        "MASK_LENGTHS": (16,),
        "MASK_ROUNDS": 1,
        "MASK_PAIRS": 1,
        "TILED_ROUNDS": 1,
        "TILED_PAIRS": 1,
        "WINDOW": 5,
        "BLOCK": 8,
        "EFFICIENT_LENGTHS": (32,),
        "EFFICIENT_ROUNDS": 1,
        "EFFICIENT_PAIRS": 1,
        "COMPARED": {"delta over sdpa": ("delta, chunked", "sdpa", 32, 2)},
        # Compiling takes a while, and needs what not every machine has.
        "shutil": SimpleNamespace(which=lambda name: None),
    },
    "listen_attend_spell": {
        "SEEDS": (0,),
        "STEPS": 2,
        "SIZE": 2,
        "TRAINED": 6,
        "DIGITS": (1, 2),
        "TESTED": 2,
        "COUNTS": (1, 4),
        "SCORED": (4,),
        "EASY": 0.5,
        "LIMIT": 4,
    },
    "minilm": {"HEADS": 3},
    "mistakes": {"SEEDS": (0,), "EPOCHS": 1, "TRAINED": 60, "HELD_OUT": 590},
    "positions": {
        "SEEDS": (0,),
        "TIMES": (1, 2),
        "STEPS": {"copy": 1, "text": 1},
        "SIZE": 2,
    },
    "probes": {"LENGTHS": (6,), "WORDS": 20, "STEPS": 2, "EVERY": 1},
    "runs": {"RATES": (2e-3,), "SIZES": (16,), "EVERY": 1, "EPOCHS": 1},
    "scaling": {
        "WIDTHS": (4,),
        "DRAWS": 1,
        "STEPS": 50,
        "TRAINED_WIDTHS": (16,),
        "SEEDS": (0,),
        "RECIPES": (("adam", 1e-3), ("sgd", 1.0)),
    },
    "scores_cost": {
        "SIZES": {"sentence": (2, 3, 5, 8, 4), "page": (2, 3, 5, 8, 4)},
        "SCORES": ("dot", "blocks"),
        "ROUNDS": 1,
        "TRAINED_ROUNDS": 1,
        "STEPS": {"dot": "grammar_luong_dot_0"},
    },
    "self_attention": {
        "PROJECTION_STEPS": (1, 2),
        "PROJECTION_SEEDS": (0,),
        "LENGTHS": (2, 4),
        "PATH_SEEDS": (0,),
    },
    "smollm2": {
        "LENGTHS": (9, 11),
        "EACH": 1,
        "WRITTEN": 2,
        "PREDICTED": 2,
        "PREDICTED_LENGTH": 16,
    },
    "smollm2_circuits": {
        "SEQUENCES": 2,
        "COUNT": 9,
        "REACH": 4,
        "SHOWN": 1,
        "SYMBOLS": 100,
        "SINK_TEXTS": 2,
        "SINK_LENGTH": 16,
    },
    "smollm2_heads": {
        "SCORED_TEXTS": 1,
        "SCORED_LENGTH": 16,
        "EACH": 1,
        "SET_EACH": 1,
        "MEAN_EACH": 1,
        "SET_TEXTS": 1,
        "SET_LENGTH": 16,
        "SIZES": (1, 2),
        "SIZE": 2,
        "DRAWS": 1,
        "PATCHED": 2,
        "LOOKED_AT": 2,
        "NAMED": {"layer": 0, "head": 0, "kind": "induction"},
    },
    "smollm2_keys": {
        "LENGTH": 64,
        "PASSAGES": 1,
        "TRAINING": (350,),
        "BATCHES": 2,
        "MAP_SECTION": 0,
        "MAP_LENGTH": 64,
    },
    "video": {
        "SEEDS": (0,),
        "POOLING_STEPS": 2,
        "POOLING_TESTED": 20,
    },
    "whisper": {
        "SEQUENCES": 2,
        "DIGITS": 2,
        "SEEDS": (0,),
    },
}


class Words:
    """A tokenizer of words and digits."""

    def encode(self, text, **settings):
        numbers = [sum(map(ord, word)) % 100 + 20 for word in text.split()]
        return SimpleNamespace(ids=numbers)

    def decode(self, ids):
        return " ".join(map(str, ids))

    def id_to_token(self, i):
        return "x"


class Digits(Words):
    """A tokenizer that knows digits alone."""

    def encode(self, text, **settings):
        return SimpleNamespace(ids=[100 + int(text)])


def build_smollm2(attention=RotaryAttention):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = DecoderConfig(
            symbols=150, width=24, heads=6, groups=3, hidden=8, blocks=2
        )
        return ModernDecoder(config, attention).eval()


def build_whisper(positions):
    heads = {"heads": 6, "blocks": 4, "positions": positions}
    return build(replace(CONFIG, **heads, tokens=50, symbols=50370))


def build_minilm(width=12, inner=20, layers=2):
    rng = torch.Generator().manual_seed(0)

    def layer(name, rows, columns):
        matrix = torch.randn(rows, columns, generator=rng)
        return {f"{name}.weight": matrix, f"{name}.bias": torch.zeros(rows)}

    def norm(name):
        name = f"{name}.LayerNorm"
        return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}

    weights = norm("embeddings")
    for table, rows in (("word", 80), ("position", 99), ("token_type", 2)):
        drawn = torch.randn(rows, width, generator=rng)
        weights[f"embeddings.{table}_embeddings.weight"] = drawn
    for i in range(layers):
        own = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            weights |= layer(f"{own}.attention.self.{part}", width, width)
        weights |= layer(f"{own}.attention.output.dense", width, width)
        weights |= layer(f"{own}.intermediate.dense", inner, width)
        weights |= layer(f"{own}.output.dense", width, inner)
        weights |= norm(f"{own}.attention.output") | norm(f"{own}.output")
    return weights


def write_vocabulary(folder):
    letters = string.ascii_lowercase + ".,"
    pieces = ["[CLS]", "[SEP]", *letters, *(f"##{x}" for x in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces))


def read_tiny_record(name):
    """Return scores of the heads of the tiny model in place of the recorded."""
    if name != "smollm2_heads":
        return records.read_record(name)
    scores = torch.rand(2, 2, 6, generator=torch.Generator().manual_seed(0)).tolist()
    kinds = dict(zip(("induction", "previous"), scores, strict=True))
    return {"results": {"scores": kinds}}


def thin_out(pairs, count):
    """Return evenly spread pairs: short and long ones."""
    return pairs[:: max(1, len(pairs) // count)][:count]


def shorten(splits, test):
    parts = ((splits.train, 96), (splits.valid, 16), (splits.test, test))
    return Splits(*(thin_out(*part) for part in parts))


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
        # Few sentences have a word that is both misaligned and mispredicted.
        test = 250 if name == "grammar" else 24
        made = ShortTask(shorten(made.splits, test), backwards)
        vars(made).update(symbols)
        found[name, backwards] = made
    return found


@pytest.fixture
def tiny(monkeypatch, tasks):
    """Make every experiment small."""
    for theme, values in TINY.items():
        module = sys.modules[f"workshop.experiments.{theme}"]
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
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
    for theme in ("smollm2_heads", "smollm2_circuits"):
        module = sys.modules[f"workshop.experiments.{theme}"]
        monkeypatch.setattr(module, "read_record", read_tiny_record)
    positions = {"whisper_digits": 650}
    monkeypatch.setattr(whisper, "load_whisper_tokenizer", Digits)
    return positions


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


@pytest.mark.parametrize("name", [n for n in NAMES if n in registry.EXPERIMENTS])
def test_an_experiment_runs(name, tiny, records_of_the_test, monkeypatch):
    if name in tiny:
        model = build_whisper(tiny[name])
        monkeypatch.setattr(whisper, "load_whisper", lambda: model)
    if name == "minilm_maps":
        write_vocabulary(records_of_the_test)
        monkeypatch.setenv("ATTNBOOK_MINILM", str(records_of_the_test))
        monkeypatch.setattr(minilm, "load_weights", lambda folder: build_minilm())
    registry.EXPERIMENTS[name].run()
    check_record(name, records_of_the_test)


def list_different_runs():
    """Return the training runs that differ in more than seed and amount."""
    found = {}
    for name, run in registry.RUNS.items():
        recipe = replace(run.recipe, seed=0, epochs=1)
        found.setdefault(replace(run, recipe=recipe, every=1, ship=True), name)
    return {name: run for run, name in found.items()}


@pytest.mark.parametrize(("name", "run"), list_different_runs().items())
def test_a_training_run_is_recorded(name, run, tiny, records_of_the_test, monkeypatch):
    monkeypatch.setitem(record.RUNS, name, run)
    record.record_run(name, progress=False)
    check_record(name, records_of_the_test)
    assert (records_of_the_test / f"{name}.safetensors").exists()
