"""The benchmark's control flow, with fake kernels and a fake clock: no GPU."""

import gc
import json
import weakref
from dataclasses import dataclass, field, replace

import pytest
import torch

from attnbook.flash.decoding import attend_split_kv
from workshop.bench import comparison, flash, machine, record
from workshop.bench.__main__ import main
from workshop.bench.accuracy import draw_inputs, measure_error_share
from workshop.bench.comparison import GpuLostError, Tools
from workshop.bench.implementations import (
    MATRIX,
    NAMES,
    build,
    list_skipped,
)
from workshop.bench.rows import PLANS, Row
from workshop.bench.timing import compare_pairs, shuffle

# No shapes: the fake kernels have none.
pytestmark = pytest.mark.precision
SMALL = {"tokens": 8, "columns": 8}
PLAN = [
    Row(way, "float32", 4, 8, causal, **SMALL)
    for way in ("fwd", "bwd")
    for causal in (False, True)
]
FASTEST = dict(zip(NAMES, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), strict=True))


def out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64 GiB")


@dataclass
class Fake:
    """Kernels that compute nothing, and a clock that makes up its times.

    Attributes:
        fail: (row's key or None, name) -> what is called instead of a kernel.
        fail_timing: the same, while timing.
        order: (row's key, name) as they were timed.
        gone: whether the GPU has stopped answering.
    """

    fail: dict = field(default_factory=dict)
    fail_timing: dict = field(default_factory=dict)
    order: list = field(default_factory=list)
    ran: list = field(default_factory=list)
    gone: bool = False

    def make(self, name, row, device):
        def run(query, key, value):
            self.ran.append((row.key, name))
            self.fail.get((row.key, name), lambda: None)()
            return query + 0 * (key.sum() + value.sum())

        run.names = row, name
        self.last = row, name
        return run

    def seconds(self, calls, times, device):
        row, name = self.names(calls[0])
        self.fail_timing.get((row.key, name), lambda: None)()
        self.order.append((row.key, name))
        return FASTEST[name]

    def names(self, call):
        found = call.__closure__ or ()
        cells = [c.cell_contents for c in found]
        run = next((c for c in cells if hasattr(c, "names")), None)
        return run.names if run else call.names

    def tools(self, **more):
        return Tools(
            make=self.make,
            seconds=self.seconds,
            alive=lambda device: not self.gone,
            judge=lambda *_: 0.5,
            rounds=4,
            **more,
        )


@pytest.fixture(autouse=True)
def without_checks(monkeypatch):
    """The checks and ceilings have tests of their own."""
    monkeypatch.setattr(flash, "check_errors", lambda *_: None)
    monkeypatch.setattr(flash, "measure_ceilings", lambda *_: None)

    def prepared(run, sets, row):
        def call():
            return run(*sets[0][:3])

        call.names = run.names
        return [call for _ in sets]

    monkeypatch.setattr(comparison, "prepare_calls", prepared)


def run(out, fake, plan=PLAN, **more):
    return flash.run_benchmark(plan, "cpu", out, tools=fake.tools(), **more)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "flash.json"


def test_a_row_out_of_memory_neither_stops_nor_repeats_the_others(out):
    bad = PLAN[1].key
    fake = Fake(fail={(bad, "ours"): out_of_memory})
    found = run(out, fake)
    assert [row["key"] for row in found["rows"]] == [row.key for row in PLAN]
    for row in found["rows"]:
        assert ("failed" in row) == (row["key"] == bad)
    failed = found["rows"][1]
    assert failed["failed"].startswith("out of memory: CUDA out of memory")
    assert failed["tflops"]["ours"] is None
    assert failed["tflops"]["sdpa_flash"] > 0
    again = Fake()
    assert run(out, again)["rows"] == found["rows"]
    assert again.ran == []


def test_a_failed_row_is_measured_again_only_when_asked(out):
    bad = PLAN[1].key
    run(out, Fake(fail={(bad, "ours"): out_of_memory}))
    fake = Fake()
    found = run(out, fake, again=True)
    assert {key for key, _ in fake.ran} == {bad}
    assert sorted(r["key"] for r in found["rows"]) == sorted(r.key for r in PLAN)
    assert not any("failed" in row for row in found["rows"])


def test_inputs_that_do_not_fit_fail_their_row_alone(out, monkeypatch):
    def too_large(row, device, seed=0):
        return out_of_memory() if row.key == PLAN[2].key else draw_inputs(row, device)

    monkeypatch.setattr(comparison, "draw_inputs", too_large)
    found = run(out, Fake())
    assert ["failed" in row for row in found["rows"]] == [0, 0, 1, 0]
    assert not any(found["rows"][2]["tflops"].values())


def test_memory_that_runs_out_while_timing_costs_one_implementation(out):
    key = PLAN[0].key
    fake = Fake(fail_timing={(key, "standard"): out_of_memory})
    row = run(out, fake)["rows"][0]
    assert row["refused"]["standard"].startswith("out of memory")
    assert row["tflops"]["standard"] is None
    assert row["tflops"]["ours"] > 0
    assert "failed" not in row


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_with_the_row_it_was_in(out):
    key = PLAN[2].key
    with pytest.raises(KeyboardInterrupt):
        run(out, Fake(fail_timing={(key, "sdpa_math"): interrupt}))
    stored = json.loads(out.read_text("utf8"))
    assert [r["key"] for r in stored["rows"]] == [r.key for r in PLAN[:2]]
    assert "running" not in stored
    fake = Fake()
    found = run(out, fake)
    assert {key for key, _ in fake.ran} == {r.key for r in PLAN[2:]}
    assert not any("failed" in row for row in found["rows"])
    assert found["rows"][2]["tflops"]["sdpa_math"] > 0


class DiedError(BaseException):
    """Stands for a process that ends at once."""


def test_a_row_that_killed_the_process_is_not_run_again(out, monkeypatch):
    key = PLAN[1].key

    def die():
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(flash.SavedRecord, "__exit__", lambda *_: None)
        with pytest.raises(DiedError):
            run(out, Fake(fail={(key, "flex"): die}))
    assert json.loads(out.read_text("utf8"))["running"] == [key, "flex"]
    fake = Fake(fail={(key, "flex"): die})
    found = run(out, fake)
    assert (key, "flex") not in fake.ran
    row = found["rows"][1]
    assert row["refused"]["flex"] == "the process died while it ran"
    assert row["tflops"]["ours"] > 0
    assert len(found["rows"]) == len(PLAN)


def test_a_gpu_that_stops_answering_ends_the_process_but_not_the_plan(out):
    key, fake = PLAN[1].key, Fake()

    def lose():
        fake.gone = True
        raise RuntimeError("CUDA error: an illegal memory access")

    fake.fail = {(key, "sdpa_cudnn"): lose}
    with pytest.raises(GpuLostError):
        run(out, fake)
    found = run(out, Fake(fail={(key, "sdpa_cudnn"): lose}))
    assert len(found["rows"]) == len(PLAN)
    report = found["rows"][1]["refused"]["sdpa_cudnn"]
    assert "illegal memory access" in report
    assert found["rows"][2]["tflops"]["sdpa_cudnn"] > 0


CHANGES = {
    "code": (record, "hash_code", lambda paths: "another"),
    "clocks": (machine, "read_clocks", lambda *_: {"sm_max_MHz": "1980"}),
}


def test_the_driver_and_the_gpu_identify_a_record(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(machine, "read_versions", lambda device: {})
    monkeypatch.setattr(machine, "read_clocks", lambda *_: {})
    found = []
    for driver in ("570.1", "580.2"):
        monkeypatch.setattr(
            machine, "query_nvidia_smi", lambda fields, told=driver: [told]
        )
        found.append(machine.identify("cuda", "c"))
    assert [x.pop("driver") for x in found] == ["570.1", "580.2"]
    assert found[0] == found[1]
    assert found[0]["device"] == "a GPU"


@pytest.mark.parametrize("name", CHANGES)
def test_another_setting_starts_a_new_record_and_keeps_the_old_one(
    out, name, monkeypatch, capsys
):
    first = run(out, Fake())
    monkeypatch.setattr(*CHANGES[name])
    fake = Fake()
    run(out, fake)
    assert {key for key, _ in fake.ran} == {row.key for row in PLAN}
    old = json.loads(out.with_suffix(".previous.json").read_text("utf8"))
    assert old["rows"] == first["rows"]
    assert "begun anew, because" in capsys.readouterr().out


def test_the_hash_changes_with_a_kernel_and_with_how_it_is_measured(tmp_path):
    paths = machine.list_files(machine.MEASURED)
    names = {f"{p.parent.name}/{p.name}" for p in paths}
    assert {
        "flash/forward.py",
        "flash/backward.py",
        "flash/sizes.py",
        "bench/accuracy.py",
        "bench/comparison.py",
        "bench/timing.py",
        "profiling/roofline.py",
        "profiling/timing.py",
    } <= names
    # A pattern of a file that was renamed names none.
    for pattern in machine.MEASURED:
        assert machine.list_files([pattern]), pattern
    assert "bench/table.py" not in names
    file = tmp_path / "a.py"
    hashes = set()
    for text in ("x = 1", "x = 2"):
        file.write_text(text)
        hashes.add(machine.hash_code([file]))
    assert len(hashes) == 2
    assert len(hashes.pop()) == 16


def rounds_of(fake, row):
    """Return the order of each round; the first two entries set the pace."""
    timed = [name for key, name in fake.order if key == row.key]
    names = [n for n in NAMES if n not in list_skipped(row)]
    after = timed[len(names) :]
    return [tuple(after[i : i + len(names)]) for i in range(0, len(after), len(names))]


def test_the_order_is_shuffled_each_round_and_the_same_in_every_run(tmp_path):
    fakes = [Fake(), Fake()]
    for i, fake in enumerate(fakes):
        run(tmp_path / f"{i}.json", fake)
    assert fakes[0].order == fakes[1].order
    for row in PLAN:
        orders = rounds_of(fakes[0], row)
        assert len(orders) == 4
        assert len(set(orders)) > 1
        assert {frozenset(order) for order in orders} == {frozenset(NAMES)}
    assert rounds_of(fakes[0], PLAN[0]) != rounds_of(fakes[0], PLAN[1])


def test_no_implementation_always_follows_the_same_one():
    before = set()
    for i in range(9):
        order = shuffle(NAMES, f"row {i}")
        before.add(order[order.index("ours") - 1])
    assert len(before) > 2


def test_speeds_are_compared_round_by_round():
    ours, theirs = [1.0, 2.0, 4.0], [2.0, 4.0, 8.0]
    assert compare_pairs(ours, theirs) == [2.0, 2.0, 2.0]


def test_a_row_records_the_speed_ratio_to_each_other_implementation(out):
    row = run(out, Fake())["rows"][0]
    assert row["faster"]["sdpa_math"] == [5.0, 5.0, 5.0]
    assert row["tflops"]["ours"] == PLAN[0].flops / 1e12


DECODING = Row("fwd", "float32", 4, 8, False, "decoding", **SMALL)


def test_a_decoding_row_records_bytes_per_second_of_each(out):
    row, plain = run(out, Fake(), plan=[DECODING, PLAN[0]])["rows"]
    assert row["tb_per_s"] == {
        name: DECODING.bytes / time / 1e12 for name, time in FASTEST.items()
    } | {"ours_teaching": None}
    assert "tb_per_s" not in plain


def test_decoding_is_checked_without_a_backward_pass(tmp_path, monkeypatch):
    """`attend_split_kv` has no gradient, and is what is timed."""
    monkeypatch.undo()
    asked = []

    def made(name, row, device):
        asked.append((name, row.direction))
        return build(name, row, device)

    kept = {"correct": {}, "wrong": {}, "faults": {}}
    out = tmp_path / "flash.json"
    flash.check_errors(flash.shrink(DECODING), "cpu", kept, out, Tools(make=made))
    assert ("ours", "fwd") in asked
    assert not kept["wrong"]
    (shares,) = kept["correct"].values()
    assert shares["ours"] <= 1
    ours = build("ours", DECODING, "cpu")
    assert ours.func is attend_split_kv
    assert build("ours", DECODING, "cuda").keywords == {"strict": True}


def test_wrong_decoding_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.undo()

    def wrong(query, key, value):
        return 1.1 * attend_split_kv(query, key, value)

    kept = {"correct": {}, "wrong": {}, "faults": {}}
    tools = Tools(make=lambda *_: wrong)
    flash.check_errors(
        flash.shrink(DECODING), "cpu", kept, tmp_path / "flash.json", tools
    )
    assert kept["wrong"]["decoding, causal False, float32, D 4"] > 1


def test_a_result_that_is_wrong_at_full_size_is_not_timed(out):
    fake = Fake()
    judge = lambda row, *_: 7.0 if fake.last[1] == "flex" else 0.5  # noqa: E731
    tools = replace(fake.tools(), judge=judge)
    found = flash.run_benchmark(PLAN, "cpu", out, tools=tools)
    for row in found["rows"]:
        assert row["tflops"]["flex"] is None
        assert "wrong by 7 error budgets" in row["refused"]["flex"]
        assert row["tflops"]["ours"] > 0


KINDS = (
    (False, "plain"), (True, "plain"), (True, "window"), (True, "alibi"),
    (True, "grouped"), (False, "decoding"),
)  # fmt: skip
CASES = [
    Row(way, "float32", 8, 96, causal, case, tokens=192, columns=32)
    for way in ("fwd", "bwd")
    for causal, case in KINDS
]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.key)
def test_right_results_are_accepted_and_wrong_ones_refused(row):
    inputs = draw_inputs(row, "cpu")
    given = [x.requires_grad_() for x in inputs[:3]]
    output = build("sdpa_math", row, "cpu")(*given)
    found = output
    if row.direction == "bwd":
        found = torch.autograd.grad(output, given, inputs[3])
    assert measure_error_share(row, "cpu", inputs, found) <= comparison.WRONG
    ours = (found if row.direction == "fwd" else found[0]).detach().clone()
    for place in (0, -1):
        wrong = ours.clone()
        wrong[0, 0, place] += 1e-3 * ours.abs().max()
        given = wrong if row.direction == "fwd" else [wrong]
        assert measure_error_share(row, "cpu", inputs, given) > comparison.WRONG


def test_no_score_matrix_is_built_beyond_4096_keys():
    for plan in PLANS.values():
        for row in plan:
            skipped = {*MATRIX} & {*list_skipped(row)}
            many = row.N > 4096 and row.case != "decoding"
            assert bool(skipped) == many, row.key
    window = next(r for r in PLANS["quick"] if r.case == "window")
    assert "flex" not in list_skipped(window)


def test_a_score_matrix_is_freed_before_the_next_is_made(monkeypatch, out):
    """Backward passes of `standard` and `sdpa_math` hold their scores."""
    alive = weakref.WeakSet()

    class Scores:
        pass

    def prepared(run, sets, row):
        scores = Scores()
        if run.names[1] in MATRIX:
            alive.add(scores)
            assert len(alive) == 1, "two score matrices are held at once"

        def call():
            return scores and run(*sets[0][:3])

        call.names = run.names
        return [call]

    monkeypatch.setattr(comparison, "prepare_calls", prepared)
    found = run(out, Fake(), plan=PLAN[2:])
    assert all(row["tflops"]["standard"] for row in found["rows"])
    gc.collect()
    assert not alive


def test_short_rows_are_replayed_from_a_graph_for_every_implementation(out):
    fake, seen = Fake(), []

    def replay(calls):
        seen.append(calls[0].names[1])

        def graph():
            return [call() for call in calls]

        graph.names = calls[0].names
        return graph

    long = replace(PLAN[0], N=2048, tokens=2048)
    tools = fake.tools(replay=replay)
    found = flash.run_benchmark([PLAN[0], long], "cpu", out, tools=tools)
    assert seen == list(NAMES)
    assert found["rows"][0]["graph"] == dict.fromkeys(NAMES, True)
    assert found["rows"][1]["graph"] == {}
    # Two sets of inputs a replay: one attention takes half its time.
    assert found["rows"][0]["ms"]["ours"] == 1e3 * FASTEST["ours"] / 2


def test_calls_that_cannot_be_captured_are_timed_directly_and_recorded_so(out):
    def replay(calls):
        raise RuntimeError("operation not permitted when stream is capturing")

    found = flash.run_benchmark(PLAN[:1], "cpu", out, tools=Fake().tools(replay=replay))
    assert found["rows"][0]["graph"] == dict.fromkeys(NAMES, False)
    assert found["rows"][0]["tflops"]["ours"] > 0


def test_rows_left_when_the_time_is_up_are_listed(out):
    found = run(out, Fake(), limit=0)
    assert found["left"] == [row.key for row in PLAN]
    assert not found["rows"]
    assert run(out, Fake())["left"] == []


def test_the_exit_code_distinguishes_failed_lost_and_left_over(
    out, monkeypatch, capsys
):
    from workshop.bench import __main__ as command

    def given(result):
        def bench(*_):
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(command, "run_benchmark", bench)
        return main(["flash", "--tiny", "--out", str(out)])

    base = {
        "device": "d", "versions": {}, "ceilings": {}, "rows": [], "wrong": {},
        "left": [],
    }  # fmt: skip
    assert given(base) == 0
    assert given(base | {"wrong": {"a kind": 3.0}}) == 1
    assert given(base | {"left": ["a row"]}) == 3
    assert given(KeyboardInterrupt()) == 3
    assert given(GpuLostError("a row", "flex", "CUDA error")) == 3
    assert "the same command goes on" in capsys.readouterr().err
