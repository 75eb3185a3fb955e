"""The command: what it refuses, what it keeps, and who waits for whom."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from attnbook.data import Splits
from attnbook.data.grammar import Aligned
from attnbook.models.transformer import Size, transformer
from attnbook.records import read_record
from attnbook.training.loop import Recipe
from attnbook.training.tasks import Task
from terminal import Terminal
from workshop.experiments import __main__ as command
from workshop.experiments import machine, record, registry

pytestmark = pytest.mark.precision
NAME = "grammar_attention_0"
LINK = frozenset({(0, 0)})
PAIRS = [
    Aligned(("a", "b", "b"), ("x", "y"), sure=LINK, possible=LINK),
    Aligned(("b", "a"), ("y",), sure=LINK, possible=LINK),
]
registry.find_experiments()


def refused(words, capsys):
    """Return the one sentence with which a command is refused."""
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smollm2_sink"], None),
        (["smolm2_sinks"], "'smolm2_sinks'; the nearest are smollm2_sinks"),
        (["nothing"], "no run begins with 'nothing'; the nearest"),
        ([NAME, "--device", "meta"], "'meta' is not a device that runs are"),
        ([NAME, "--device", "cuda:0"], "'cuda:0' was requested, but PyTorch"),
    ],
)
def test_a_wrong_word_is_refused_in_one_sentence(words, message, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if message is None:  # the beginning of a name is enough
        done = []
        monkeypatch.setattr(command, "repeat_run", lambda name, _: done.append(name))
        command.main(words)
        assert done == ["smollm2_sinks"]
        return
    assert message in refused(words, capsys)


def test_a_run_that_measures_the_processor_takes_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    message = refused([NAME, "--device", "cuda:2"], capsys)
    assert "the last of this machine's 2 GPUs is cuda:1" in message
    message = refused(["mask_cost", "--device", "cuda"], capsys)
    assert "mask_cost always runs on the CPU, not on cuda:0" in message


def test_a_record_names_the_device_it_was_made_on(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Fast")
    with machine.use_device(torch.device("cuda:1")):
        made = record.make_record("a_run", [0], {})
    assert made["device"].startswith("Fast (cuda:1), ")
    assert made["command"].endswith("a_run --device cuda:1")
    assert record.make_record("a_run", [0], {})["command"].endswith("a_run")


@pytest.mark.parametrize("real", [True, False], ids=["terminal", "pipe"])
def test_a_run_announces_its_duration_on_a_terminal(real, monkeypatch):
    stream, stored = Terminal(real), read_record("mask_cost")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setitem(
        command.EXPERIMENTS, "mask_cost", SimpleNamespace(run=lambda: stored)
    )
    assert command.repeat_run("mask_cost", progress=True)
    assert (f"{stored['wall_s'] / 60:.1f} minutes" in stream.text) == real


def read_folder(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_without_enough_memory_goes_on_from_its_last_epoch(
    records_of_the_test, monkeypatch, capsys
):
    data = Task(Splits(PAIRS * 4, PAIRS, PAIRS))
    sizes = len(data.sources), len(data.targets), Size(8, 2, 8, 1)
    small = SimpleNamespace(
        **vars(registry.RUNS[NAME]) | {"recipe": Recipe(3, size=2)},
        data=lambda: data,
        model=lambda: transformer(*sizes),
    )
    monkeypatch.setitem(record.RUNS, NAME, small)
    steps, compute_loss = [], record.Trainer.compute_loss

    def half_way(trainer, made):
        steps.append(made)
        if len(steps) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to ...")
        return compute_loss(trainer, made)

    monkeypatch.setattr(record.Trainer, "compute_loss", half_way)
    assert command.main([NAME, "--quiet"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"{NAME} needs more memory than the GPU has free")
    assert "goes on from its last epoch" in line
    # One epoch of four batches was kept, and no record written.
    kept = [x for x in read_folder(records_of_the_test) if not x.startswith("place")]
    assert f"{NAME}.safetensors" in kept and f"{NAME}.json" not in kept


def test_an_interrupted_recording_goes_on(records_of_the_test):
    done = []

    def run(name, seed):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append((name, seed))
        return [{"method": name, "seed": seed}]

    jobs = [("a", 0), ("b", 0), ("a", 1)]
    with pytest.raises(KeyboardInterrupt):
        record.run_jobs("study", {"steps": 5}, jobs, run)
    done.clear()
    rows = record.run_jobs("study", {"steps": 5}, jobs, run)
    assert done == [("a", 1)]
    assert rows == [{"method": n, "seed": s} for n, s in jobs]
    done.clear()
    with pytest.raises(KeyboardInterrupt):  # other settings begin anew
        record.run_jobs("study", {"steps": 6}, jobs, run)


def test_an_interrupted_write_leaves_the_old_record(records_of_the_test, monkeypatch):
    made = record.make_record("a_run", [0], {"x": 1 / 3}, wall_s=1.0, cpu_s=0.5)
    record.write_record(made)
    record.save_weights(torch.nn.Linear(2, 3), "a_run")
    before = read_folder(records_of_the_test)

    def stop(path, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(records_of_the_test), "replace", stop)
    for again in (
        lambda: record.write_record(made | {"results": {}}),
        lambda: record.save_weights(torch.nn.Linear(2, 3), "a_run"),
    ):
        with pytest.raises(KeyboardInterrupt):
            again()
    assert before.items() <= read_folder(records_of_the_test).items()
    assert read_record("a_run", records_of_the_test)["results"] == {"x": 0.333333}


def test_runs_wait_for_a_free_core(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    order = []

    def work():
        with machine.hold_cores(2, tmp_path / "cores"):
            order.append("in")

    with machine.hold_cores(1, tmp_path / "cores"):
        whole = threading.Thread(target=work)
        whole.start()
        time.sleep(0.3)
        assert order == []
    whole.join()
    assert order == ["in"]
    with (
        pytest.raises(ValueError, match="3 threads asked for, but 2 cores here"),
        machine.hold_cores(3, tmp_path / "cores"),
    ):
        pass


def test_two_modules_cannot_define_experiments_of_one_name(monkeypatch):
    monkeypatch.setattr(registry, "HOMES", {"count_words": "here"})
    with pytest.raises(ValueError, match=r"'count_words': in here and in other"):
        registry.register_runs({"count_words": None}, "other")
