"""Recorded runs on a chosen device: what is refused, and what is kept."""

import json
from types import SimpleNamespace

import pytest
import torch

from attnbook.data import Splits, characters
from attnbook.data.grammar import Aligned
from attnbook.models import associative_recall
from attnbook.models.language_model import LanguageModel
from attnbook.models.lookup_model import LookupModel, draw_lookup
from attnbook.models.transformer import Size, transformer
from attnbook.records import REQUIRED_FIELDS
from attnbook.training import language_modeling
from attnbook.training.loop import Recipe
from attnbook.training.scoring import predict_links, search_best
from attnbook.training.tasks import Task
from standin import PLACE, STANDIN
from workshop.experiments import __main__ as command
from workshop.experiments import (
    device,
    heads,
    longer_sequences,
    path_length,
    record,
    scaling,
    stability,
)
from workshop.experiments.probes import compute_contexts, fit_probe
from workshop.experiments.record import make_record, save_weights, write_record
from workshop.experiments.registry import (
    EXPERIMENTS,
    RUNS,
    Experiment,
    find_experiments,
)

pytestmark = pytest.mark.precision
NAME = "grammar_attention_0"
PAIRS = [
    Aligned(
        ("a", "b", "b"),
        ("x", "y"),
        sure=frozenset({(0, 0)}),
        possible=frozenset({(0, 0)}),
    ),
    Aligned(
        ("b", "a"),
        ("y",),
        sure=frozenset({(0, 1)}),
        possible=frozenset({(0, 1)}),
    ),
]

find_experiments()


def refused(words, capsys):
    """Return the one sentence with which a command is refused."""
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("text", ["gpu", "cuda:x", "meta", "mps", "tpu:0"])
def test_an_unknown_device_is_refused_by_its_name(text, capsys):
    message = refused([NAME, "--device", text], capsys)
    assert f"{text!r} is not a device that runs are recorded on" in message
    assert "cuda:0" in message


def test_a_gpu_is_refused_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refused([NAME, "--device", "cuda:0"], capsys)
    assert "'cuda:0' was requested" in message
    assert "finds no NVIDIA GPU on this machine" in message


def test_a_gpu_beyond_the_last_one_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    message = refused([NAME, "--device", "cuda:2"], capsys)
    assert "the last of this machine's 2 GPUs is cuda:1" in message
    assert device.parse_device("cuda:1") == torch.device("cuda:1")
    assert device.parse_device("cuda") == torch.device("cuda:0")


def test_a_run_that_measures_the_processor_takes_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr(device, "parse_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setattr(command, "parse_device", device.parse_device)
    message = refused(["mask_cost", "--device", "cuda"], capsys)
    assert "mask_cost always runs on the CPU, not on cuda:0" in message


def test_a_record_names_the_device_it_was_made_on(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_name", lambda device: f"Fast {device.index}"
    )
    assert make_record("a_run", [0], {})["device"] == device.describe_device(
        device.CPU, record.read_processor_name()
    )
    with device.use_device(torch.device("cuda:1")):
        made = make_record("a_run", [0], {})
    assert made["device"].startswith("Fast 1 (cuda:1), ")
    assert made["command"].endswith("a_run --device cuda:1")
    assert make_record("a_run", [0], {})["command"].endswith("a_run")


def test_the_chosen_device_applies_only_during_the_runs():
    with pytest.raises(KeyError), device.use_device(torch.device("cuda:0")):
        assert device.get_device() == torch.device("cuda:0")
        raise KeyError
    assert device.get_device() == device.CPU


def stored(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_running_out_of_gpu_memory_keeps_the_old_record(tmp_path, monkeypatch, capsys):
    before = stored(record.RECORDS)
    monkeypatch.setattr(record, "CACHE", tmp_path)
    data = Task(Splits(PAIRS * 4, PAIRS, PAIRS))
    sizes = len(data.sources), len(data.targets), Size(8, 2, 8, 1)
    small = SimpleNamespace(
        **vars(RUNS[NAME]) | {"recipe": Recipe(3, size=2), "data": lambda: data},
        model=lambda: transformer(*sizes),
    )
    monkeypatch.setattr(record, "RUNS", {NAME: small})
    steps, compute_loss = [], record.Trainer.compute_loss

    def half_way(trainer, made):
        steps.append(made)
        if len(steps) == 6:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 32.00 GiB. GPU 0 has ..."
            )
        return compute_loss(trainer, made)

    monkeypatch.setattr(record.Trainer, "compute_loss", half_way)
    assert command.main([NAME, "--quiet"]) == 1
    message = capsys.readouterr()
    assert message.out == ""
    (line,) = message.err.strip().splitlines()
    assert line.startswith(f"{NAME} needs more memory than the GPU has free")
    assert "its record is unchanged" in line
    assert "goes on from its last epoch" in line
    assert stored(record.RECORDS) == before
    # One epoch of four batches was kept, and nothing half-written.
    assert [*stored(tmp_path)] == [f"{NAME}.safetensors"]


def test_the_other_runs_go_on(monkeypatch, capsys):
    done = []

    def small():
        done.append("small")
        return dict.fromkeys(REQUIRED_FIELDS, "2026") | {"cpu_s": 60}

    def large():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried ...")

    for name, function in ("x_large", large), ("x_small", small):
        made = Experiment(name, function, on_cpu=False, module="x")
        monkeypatch.setitem(EXPERIMENTS, name, made)
    assert command.main(["x_"]) == 1
    assert done == ["small"]
    assert "the same command begins anew" in capsys.readouterr().err


def test_a_recorded_function_writes_what_it_measures(monkeypatch):
    written = []
    monkeypatch.setattr(record, "write_record", written.append)

    @record.recorded(seeds=range(2), width=3)
    def a_run():
        return {"bleu": 1.0}

    made = a_run()
    assert written == [made]
    assert made["name"] == "a_run" and made["results"] == {"bleu": 1.0}
    assert made["seeds"] == [0, 1] and made["width"] == 3
    assert made["threads"] == 1 and made["wall_s"] >= 0


def test_an_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch):
    made = make_record("a_run", [0], {"bleu": 1.0}, wall_s=1.0, cpu_s=0.5)
    write_record(made, tmp_path)
    save_weights(torch.nn.Linear(2, 3), "a_run", tmp_path)
    before = stored(tmp_path)

    def stop(path, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(tmp_path), "replace", stop)
    for again in (
        lambda: write_record(made | {"results": {}}, tmp_path),
        lambda: save_weights(torch.nn.Linear(2, 3), "a_run", tmp_path),
    ):
        with pytest.raises(KeyboardInterrupt):
            again()
    kept = {k: v for k, v in stored(tmp_path).items() if k in before}
    assert kept == before
    assert json.loads(before["a_run.json"])["results"] == {"bleu": 1.0}


def made(factory):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory().eval()


def test_tasks_are_decoded_on_the_models_device():
    data = Task(Splits(PAIRS, PAIRS, PAIRS))
    sizes = len(data.sources), len(data.targets), Size(8, 2, 8, 1)
    ours = made(lambda: transformer(*sizes))
    found = []
    for place in (None, STANDIN):
        if place is None:
            found.append(scored(data, ours))
        else:
            with place.entered():
                found.append(scored(data, place(ours)))
    assert found[0] == found[1]


def scored(data, model):
    """Return what is read off a model, as plain numbers."""
    answers = data.generate(model, PAIRS, limit=5)
    vectors = compute_contexts(model, data, PAIRS)
    wanted = torch.zeros(2, 3, dtype=torch.long) + 5
    probe = fit_probe(vectors.detach(), wanted, symbols=7, steps=2)
    assert next(probe.parameters()).device == vectors.device
    return (
        [x.ids for x in answers],
        predict_links(data, model, PAIRS),
        search_best(model, data, PAIRS[0]),
    )


def test_small_experiments_run_on_the_models_device():
    course = language_modeling.LanguageModelRecipe(2, 1e-3, size=2, window=6, clip=1.0)
    symbols = characters.encode_characters("train")[1]
    losses = []
    rng = torch.Generator().manual_seed(0)
    with STANDIN.entered():
        model = STANDIN(made(lambda: LanguageModel(symbols + 257, Size(8, 2, 8, 1))))
        language_modeling.train_language_model(
            model, course, 0, [lambda _, loss: losses.append(loss)]
        )
        assert language_modeling.compute_held_out_loss(model, "valid", 6, count=4) > 0
        assert longer_sequences.measure_reading_loss(model, 70, count=4) > 0
        assert 0 <= longer_sequences.measure_copying_error(model, 6, count=16) <= 1
        toy = STANDIN(made(lambda: associative_recall.AssociativeRecallModel(4, 16)))
        assert heads.measure_similarity(toy)["entropy"] > 0
        heads.share_embeddings(toy)
        only = STANDIN(made(lambda: LookupModel(9, 9, 9, 4, 4)))
        loss, *_ = scaling.compute_loss_and_weights(only, draw_lookup(2, 5, 9, 3, rng))
        assert loss.device == PLACE
        recall = STANDIN(made(lambda: path_length.RecallModel("attention")))
        text = torch.zeros(2, 5, dtype=torch.long).to(PLACE)
        assert recall(text).device == PLACE
    assert len(losses) == 2
    assert stability.measure_scores(stability.build_model("plain", 0))["entropy"]
