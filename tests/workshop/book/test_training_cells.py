"""Cells that train a model use a GPU where there is one.

A cell trains if it makes an optimizer, calls the library's training, or
computes gradients in a loop. It has to move something to the device that
`choose_device` returns. Each cell is then run on the stand-in of `standin.py`,
with the cells that it needs and those that need its results: every step of an
optimizer has to be there, and what reads the results in the same section has
to work.
"""

import ast
import json
import re
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from workshop.book.cell_names import find_names, parse

from attnbook.models import devices
from attnbook.training import loop
from attnbook.training.batching import draw_batches
from standin import PLACE, StandinDevice, is_on_standin
from workshop.bench.notebook_cells import execute
from workshop.book.cell_kinds import find_kind, read_source
from workshop.chapters import read_unfinished

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
CHAPTERS = [
    path
    for path in sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))
    if path.stem not in read_unfinished()
]
LOOPS = (ast.For, ast.While)
# Cells that move nothing, by a line of theirs, and why.
READ = "computes a few gradients to show them, and trains nothing"
SMALL = "trains on 20 headlines of three words; moving them is more code"
STEP = "takes one step, to show how large it is, and trains nothing"
TIMED = "measures the CPU time of a step, of five models in turn"
MOVED = "the cell that builds the model has moved it"
EXCEPTIONS = {
    "00_before_you_start": {
        "    loss = (x**2).sum()": READ,
        "weights = x.softmax(dim=-1)": READ,
    },
    "01_bottleneck": {
        "trainer = Trainer(": MOVED,
    },
    "02_bahdanau": {"largest = []": READ},
    "04_scaled_dot_product": {
        "for difference in 0.0, 2.0, 10.0:": READ,
        "class Reversed(ByHand):": READ,
    },
    "06_multi_head": {"def count_reached(project):": READ},
    "08_positions": {"def true_loss(model):": SMALL},
    "09_transformer": {
        "equal = torch.full((1, 4), 3.0, requires_grad=True)": READ,
        "optimizer = torch.optim.Adam([w], lr=1e-3)": STEP,
        "from time import process_time": TIMED,
    },
}


@cache
def code_cells(path):
    """Return the kind and the source of each code cell."""
    return tuple(
        (find_kind(cell["metadata"].get("tags", [])), read_source(cell))
        for cell in json.loads(path.read_text("utf8"))["cells"]
        if cell["cell_type"] == "code"
    )


def find_section_end(path, place):
    """Return the number of the first code cell after a cell's section."""
    count = 0
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        heading = re.search(r"(?m)^## ", read_source(cell))
        if cell["cell_type"] == "code":
            count += 1
        elif heading and count > place:
            break
    return count


def calls(tree):
    return [x for x in ast.walk(tree) if isinstance(x, ast.Call)]


def called(node):
    """Return the last part of the name that a call calls."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def find_library_training(sources):
    """Return what a notebook imports that trains the model it is given."""
    return {
        alias.asname or alias.name
        for source in sources
        for node in ast.walk(parse(source))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("attnbook.training")
        for alias in node.names
        if alias.name.lower().startswith(("train", "fit", "optimize"))
    }


def trains(source, library=frozenset()):
    """Tell whether a cell trains a model."""
    tree = parse(source)
    made = any(
        called(x) in library or ".optim." in f".{ast.unparse(x.func)}"
        for x in calls(tree)
    )
    return made or any(
        called(x) in {"backward", "grad"}
        for loop in ast.walk(tree)
        if isinstance(loop, LOOPS)
        for x in calls(loop)
    )


def find_devices(sources):
    """Return the names that a notebook gives to what choose_device returns."""
    return {
        target.id
        for source in sources
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and called(node.value) == "choose_device"
        for target in node.targets
    }


def moves(source, names=frozenset()):
    """Tell whether a cell puts something on the chosen device."""

    def is_chosen(node):
        if isinstance(node, ast.Call):
            return called(node) == "choose_device"
        return isinstance(node, ast.Name) and node.id in names

    return any(
        (called(x) == "to" and any(map(is_chosen, x.args)))
        or any(k.arg == "device" and is_chosen(k.value) for k in x.keywords)
        for x in calls(parse(source))
    )


@cache
def find_training(path):
    """Return the places of the cells of a chapter that train."""
    found = code_cells(path)
    library = find_library_training(source for _, source in found)
    return tuple(
        place
        for place, (kind, source) in enumerate(found)
        if kind in ("open", "plumbing") and trains(source, library)
    )


def find_exception(path, source):
    """Return why a cell need not move anything, or None."""
    lines = source.splitlines()
    known = EXCEPTIONS.get(path.stem, {})
    return next((known[x] for x in lines if x in known), None)


def find_slice(sources, place, library=frozenset()):
    """Return the cells needed to run one and what reads its results."""
    names = [find_names(source) for source in sources]
    trained = {
        x.id
        for call in calls(parse(sources[place]))
        if called(call) in library
        for x in call.args
        if isinstance(x, ast.Name)
    }
    later, tainted = [place], names[place][0] | trained
    for n in range(place + 1, len(sources)):
        bound, read = names[n]
        if read & tainted:
            later.append(n)
            tainted |= bound
        else:
            tainted -= bound
    wanted, needed = set(later), set()
    for n in reversed(range(later[-1] + 1)):
        bound, read = names[n]
        if n in wanted or bound & needed:
            wanted.add(n)
            needed = needed - bound | read
    return sorted(wanted)


@contextmanager
def counting_steps():
    """Count the steps of optimizers; each has to be on the stand-in."""
    steps = []

    def check(optimizer, args, kwargs):
        groups = optimizer.param_groups
        learned = [x for group in groups for x in group["params"]]
        assert all(map(is_on_standin, learned))
        assert all(is_on_standin(x.grad) for x in learned if x.requires_grad)
        steps.append(optimizer)

    handle = register_optimizer_step_pre_hook(check)
    try:
        yield steps
    finally:
        handle.remove()


@pytest.fixture
def chapters_folder(monkeypatch):
    """Let cells run for a few steps, on the stand-in, where notebooks do."""
    monkeypatch.chdir(ROOT / "chapters")
    monkeypatch.setattr(devices, "choose_device", lambda: PLACE)
    monkeypatch.setattr(loop, "draw_batches", lambda *a, **k: draw_batches(*a, **k)[:3])
    matplotlib.use("Agg")
    threads = torch.get_num_threads()
    with matplotlib.rc_context(), torch.random.fork_rng(devices=[]):
        yield
    plt.close("all")
    torch.set_num_threads(threads)


def shorten(source):
    return re.sub(r"\bsteps=\d+", "steps=3", source)


def run(sources, places, namespace):
    """Run cells in a namespace."""
    for place in places:
        execute(shorten(sources[place]), f"<code cell {place}>", namespace)


def prepare(path, place):
    """Run what a cell needs; return its chapter, what is left, the names."""
    found = code_cells(path)
    sources = [source for _, source in found]
    body = sources[: find_section_end(path, place)]
    wanted = find_slice(body, place, find_library_training(sources))
    # A proof asserts what a model does that was trained to the end.
    kept = [n for n in wanted if found[n][0] != "proof"]
    namespace = {"__name__": "__main__"}
    run(sources, [n for n in kept if n < place], namespace)
    return sources, [n for n in kept if n >= place], namespace


@pytest.mark.long
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
def test_cells_that_train_use_the_chosen_device(path):
    sources = [source for _, source in code_cells(path)]
    names = find_devices(sources)
    left = {
        place: sources[place]
        for place in find_training(path)
        if not moves(sources[place], names)
        and find_exception(path, sources[place]) is None
    }
    assert not left, (
        "move model and data with `.to(choose_device())`, or name the cell in "
        "EXCEPTIONS with a reason"
    )


@pytest.mark.long
def test_every_exception_is_still_needed():
    needed = {
        (path.stem, line)
        for path in CHAPTERS
        for place in find_training(path)
        for line in code_cells(path)[place][1].splitlines()
        if line in EXCEPTIONS.get(path.stem, {})
    }
    listed = {(name, x) for name, lines in EXCEPTIONS.items() for x in lines}
    assert needed == listed


TRAINING = [
    pytest.param(path, place, id=f"{path.stem}-{place}")
    for path in CHAPTERS
    for place in find_training(path)
    if find_exception(path, code_cells(path)[place][1]) in (None, MOVED)
]


def test_live_training_is_found_in_the_chapters_that_have_it():
    found = {x.values[0].stem[:2] for x in TRAINING}
    assert found >= {"01", "02", "03", "04", "05", "06", "07", "09"}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:__array__")
@pytest.mark.parametrize(("path", "place"), TRAINING)
def test_training_and_what_reads_it_run_on_the_stand_in(path, place, chapters_folder):
    with StandinDevice(), counting_steps() as steps:
        run(*prepare(path, place))
    assert len(steps) >= 3


MOVES = re.compile(r"\.to\(device\)|\.to\(choose_device\(\)\)|, device=device")


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "place"),
    [x for x in TRAINING if MOVES.search(code_cells(x.values[0])[x.values[1]][1])],
)
def test_without_one_of_its_moves_a_cell_is_refused(path, place, chapters_folder):
    with StandinDevice():
        sources, places, namespace = prepare(path, place)
        whole = sources[place]
        for found in MOVES.finditer(whole):
            sources[place] = whole[: found.start()] + whole[found.end() :]
            with (
                counting_steps(),
                pytest.raises((AssertionError, RuntimeError)),
            ):
                run(sources, places, dict(namespace))


@pytest.mark.parametrize(
    "source",
    [
        "optimizer = torch.optim.SGD([w], lr=1.0)",
        "o = optim.Adam(model.parameters())",
        "fit_all(model, steps=3)",
        "for _ in range(9):\n    loss(w).backward()\n    w.data -= w.grad",
        "while x > 1:\n    (g,) = torch.autograd.grad(f(x), x)\n    x = x - g",
    ],
)
def test_training_is_found(source):
    assert trains(source, {"fit_all"})


@pytest.mark.parametrize(
    "source",
    [
        "y.sum().backward()",
        "for x in inputs:\n    print(x.grad)",
        "fit_all(model, steps=3)",
        "model.train()",
    ],
)
def test_a_single_gradient_is_no_training(source):
    assert not trains(source)


def test_the_librarys_training_is_found_by_its_import():
    sources = [
        "from attnbook.training.associative_recall import train",
        "from attnbook.training.loop import Recipe, Trainer as T, optimize",
        "from attnbook.training.tasks import Task",
    ]
    assert find_library_training(sources) == {"train", "T", "optimize"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("model.to(choose_device())", True),
        ("batch = draw().to(device)", True),
        ("w = torch.zeros(3, device=device)", True),
        ("device = choose_device()\nmodel = build()", False),
        ("x = x.to(torch.float64)", False),
        ("x = x.to(y.device)", False),
        ("w = torch.zeros(3, device='cpu')", False),
    ],
)
def test_a_move_is_to_the_chosen_device(source, expected):
    names = find_devices(["def f():\n    device = choose_device()"])
    assert moves(source, names) == expected
