"""Calls of an answer on cases, as data; and how two of them are compared."""

import ast
import contextlib
import copy
import dis
import importlib
import inspect
import numbers
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnbook.exercises.isolation import Guard, seed_everything
from attnbook.exercises.limits import (
    SHOWN,
    MemoryLimit,
    Stopped,
    limit_output,
    limit_time,
)
from attnbook.exercises.verdict import Finding, make_finding, name_type, write_number

# How far a right number may be from the solution's, as a share of the largest of
# its tensor: a hundred roundings of the precision or more.
BOUND = {torch.float16: 5e-3, torch.bfloat16: 3e-2}
USUAL_BOUND = 1e-4
NUMBER_BOUND = 1e-5  # of Python's numbers, as a share of each
# Nearly zero gradients are differences of numbers of the upstream gradient's size.
LEAST_GRADIENT = 1.0
NUMBERS = ("a number", "a list of numbers")

# The global seeds of the calls. An answer that gives another result under the
# second seed draws random numbers, or keeps state between calls if it also does
# under the first seed again.
SEEDS = (11, 13, 11)

# What PyTorch's first backward pass imports, which takes seconds. Cut short by an
# alarm, an import stays broken.
BACKWARD = "torch.fx.experimental.symbolic_shapes"

STUB = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
INPUTS = tuple(f"input {n}" for n in range(1, 30))


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Attributes:
        tries: what it tries, in words that follow "Tried".
        inputs: of the call.
        gradient: whether the gradients of tensors in single precision are compared.
        memory: how many bytes the call may hold at once, if that counts.
    """

    tries: str
    inputs: tuple
    gradient: bool = True
    memory: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What one call gave, as data: texts, numbers and tensors.

    Attributes:
        form: what kind of thing was returned, in words.
        tensors: what was returned; numbers and lists of numbers become tensors.
        gradients: one for each input, None where none is asked for or arrives.
        changed: the places of the inputs that the call changed.
        error: what was raised, in one line.
        stopped: the slug of the limit it ran into.
        used: the name of a ready-made function that it called.
        attempted: False if it is still a stub.
    """

    form: str = ""
    tensors: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor | None, ...] = ()
    changed: tuple[int, ...] = ()
    error: str = ""
    stopped: str = ""
    used: str = ""
    attempted: bool = True


Rounds = tuple[tuple[Outcome, ...], ...]


def keep_result(returned: object, *inputs: object) -> object:
    """Return what is compared of a result: all of it."""
    return returned


def run_rounds(
    answer: Callable, cases: Sequence[Case], guard: Guard, read: Callable, again: bool
) -> Rounds:
    """Call an answer on every case, in one to three rounds, until it is stopped.

    Only with `again` are there rounds after the first, which find randomness and
    state, and only then is shown what the answer prints in its first call.
    """
    rounds: list[tuple[Outcome, ...]] = []
    for seed in SEEDS if again else SEEDS[:1]:
        outcomes: list[Outcome] = []
        for place, case in enumerate(cases):
            if rounds:
                case = without_limit(case, rounds[0][place])
            with limit_output(SHOWN if again and not rounds and not place else 0):
                outcomes.append(run(answer, case, seed, guard, read))
            if outcomes[-1].stopped:
                return (*rounds, tuple(outcomes))
        rounds.append(tuple(outcomes))
        if len(rounds) == 2 and all(map(did_the_same, *rounds)):
            break
    return tuple(rounds)


def without_limit(case: Case, known: Outcome) -> Case:
    """Return a case without a limit on memory if a call was known to keep it.

    Measuring memory takes most of the time of a call.
    """
    return case if known.error else replace(case, memory=None)


def run(
    answer: Callable,
    case: Case,
    seed: int = SEEDS[0],
    guard: Guard | None = None,
    read: Callable = keep_result,
) -> Outcome:
    """Call an answer on copies of a case's inputs; return what happened."""
    seed_everything(seed)
    given = [
        x.clone() if isinstance(x, Tensor) else copy.deepcopy(x) for x in case.inputs
    ]
    leaves = {
        i: x.requires_grad_()
        for i, x in enumerate(given)
        if case.gradient and isinstance(x, Tensor) and x.dtype == torch.float32
    }
    for i, leaf in leaves.items():
        importlib.import_module(BACKWARD)
        given[i] = leaf.clone()  # may be overwritten, and we would see it
    nothing = contextlib.nullcontext()
    try:
        with limit_time():
            with guard or nothing:
                with MemoryLimit(case.memory) if case.memory else nothing:
                    returned = answer(*given)
                if returned is not None and returned is not ...:
                    returned = read(returned, *given)
            form, tensors = read_result(returned)
            found = compute_gradients(tensors, leaves)
            gradients = tuple(map(found.get, range(len(given))))
            tensors = tuple(map(copy_numbers, tensors))
    except KeyboardInterrupt:
        raise
    except Stopped as limit:
        return Outcome(stopped=limit.slug)
    except BaseException as raised:  # an answer may raise anything
        if guard and guard.used:
            return Outcome(used=guard.used[0])
        # A stub's has no message, and those that PyTorch raises have one.
        if isinstance(raised, NotImplementedError) and not str(raised):
            return Outcome(attempted=False)
        return Outcome(error=format_error(raised))
    if guard and guard.used:
        return Outcome(used=guard.used[0])
    if returned is ... or (returned is None and is_empty_function(answer)):
        return Outcome(attempted=False)
    pairs = enumerate(zip(given, case.inputs, strict=True))
    changed = tuple(i for i, (now, before) in pairs if not is_unchanged(now, before))
    return Outcome(form, tensors, gradients, changed)


def read_result(returned: Any) -> tuple[str, tuple[Tensor, ...]]:
    """Return the kind of a result, in words, and its tensors."""
    if isinstance(returned, Tensor) and (
        returned.dim() or returned.dtype != torch.bool
    ):
        return "a tensor", (returned,)
    if type(returned).__name__ == "ndarray":
        return "a NumPy array", (torch.as_tensor(returned),)
    several = isinstance(returned, tuple | list)
    values = list(returned) if several else [returned]
    if several and values and all(isinstance(x, Tensor) for x in values):
        return f"{len(values)} tensor{'s' * (len(values) > 1)}", tuple(values)
    if returned is None:
        return "None", ()
    # Numbers of NumPy's, and tensors of one number.
    values = [x.tolist() if hasattr(x, "tolist") else x for x in values]
    if values and all(isinstance(x, bool) for x in values):
        kind, found = "boolean", torch.tensor(values)
    elif all(isinstance(x, numbers.Real) for x in values):
        kind = "number"
        found = torch.tensor([float(x) for x in values], dtype=torch.float64)
    else:
        kinds = ", ".join(type(x).__name__ for x in values)
        name = type(returned).__name__
        return f"a {name} of {kinds}" if several else f"an object of type {name}", ()
    return (f"a list of {kind}s", (found,)) if several else (f"a {kind}", (found[0],))


def compute_gradients(
    output: Sequence[Tensor], leaves: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """Return the gradients that reach the leaves, under fixed upstream gradients."""
    ends = [x for x in output if x.requires_grad]
    if not (leaves and ends):
        return {}
    steps = [torch.arange(1, x.numel() + 1).view(x.shape) for x in ends]
    upstream = [n.double().sin().to(x) for n, x in zip(steps, ends, strict=True)]
    given = tuple(leaves.values())
    found = torch.autograd.grad(ends, given, upstream, allow_unused=True)
    pairs = zip(leaves, found, strict=True)
    return {i: copy_numbers(x) for i, x in pairs if x is not None}


def copy_numbers(x: Tensor) -> Tensor:
    """Return a tensor's numbers without graph, device and layout."""
    return x.detach().cpu().to_dense().clone()


def is_unchanged(now: Any, before: Any) -> bool:
    """Tell whether an input is still what it was, to the last bit.

    Functions and other objects that an answer can only call are not compared.
    """
    if type(now) is not type(before):
        return False
    if isinstance(before, Tensor):
        if now.shape != before.shape or now.dtype != before.dtype:
            return False
        return bool(((now == before) | (now.isnan() & before.isnan())).all())
    if isinstance(before, nn.Module):
        modes = ([part.training for part in x.modules()] for x in (now, before))
        held, known = now.state_dict(), before.state_dict()
        return next(modes) == next(modes) and is_unchanged(held, known)
    if isinstance(before, dict):
        return now.keys() == before.keys() and all(
            is_unchanged(now[key], before[key]) for key in before
        )
    if isinstance(before, list | tuple):
        return len(now) == len(before) and all(map(is_unchanged, now, before))
    return not isinstance(before, int | float | str | set) or now == before


def is_empty_function(answer: Callable) -> bool:
    """Tell whether the body of a function is still `...` or `pass`."""
    code = getattr(answer, "__code__", None)
    if code is None or code.co_name == "<lambda>":
        return False
    with contextlib.suppress(OSError, SyntaxError, TypeError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(answer)))
        if any(isinstance(node, ast.Return) for node in ast.walk(tree)):
            return False
    return {step.opname for step in dis.get_instructions(code)} <= STUB


def format_error(raised: BaseException) -> str:
    """Return an error as `Type: the first line of its message`, kept short."""
    first = str(raised).strip().partition("\n")[0]
    return f"{type(raised).__name__}: {first}"[:200].rstrip(": .")


def did_the_same(a: Outcome, b: Outcome) -> bool:
    """Tell whether two calls gave the same, up to rounding."""
    a = read_like(a, b)
    one, other = find_difference(a, b, exact=True), find_difference(b, a, exact=True)
    return one is None and other is None


def differs(
    ours: Tensor, right: Tensor, form: str = "a tensor", least: float = 0.01
) -> Tensor:
    """Return True where two tensors of one shape differ beyond rounding.

    The bound is a share of the largest right number, which counts as `least` at
    least. Python's numbers count each by itself, because they may differ much in
    size, and whole ones exactly.
    """
    if not right.is_floating_point() and not ours.is_floating_point():
        return ours != right
    kind, ours, right = right.dtype, ours.double(), right.double()
    bound = right.abs().masked_fill(~right.isfinite(), 0.0)
    if form in NUMBERS:
        whole = (ours == ours.round()) & (right == right.round())
        bound = (NUMBER_BOUND * bound + 1e-9).masked_fill(whole, 0.0)
    elif bound.numel():
        bound = BOUND.get(kind, USUAL_BOUND) * bound.amax().clamp(min=least)
    same = (ours == right) | (ours.isnan() & right.isnan())
    return ~same & ~((ours - right).abs() <= bound)


def read_like(got: Outcome, want: Outcome) -> Outcome:
    """Return an outcome with numbers in place of tensors where these are right."""
    held = "tensor" in got.form or got.form == "a NumPy array"
    if "tensor" in want.form or not want.tensors or not held:
        return got
    found, right = got.tensors[0], want.tensors[0]
    plain = [x.tolist() for x in got.tensors]
    if got.form in ("a tensor", "a NumPy array"):
        one = found.numel() == right.numel() == 1
        plain = found.reshape(right.shape).tolist() if one else plain[0]
    form, tensors = read_result(plain)
    if form != want.form:
        return got
    return replace(got, form=form, tensors=tensors, gradients=want.gradients)


def find_difference(
    got: Outcome,
    want: Outcome,
    takes: Sequence[str] = INPUTS,
    returns: Sequence[str] = (),
    exact: bool = False,
) -> Finding | None:
    """Return the first thing that is wrong with an outcome, or None.

    `takes` and `returns` are the names of the inputs and outputs. A result in single
    precision is accepted where the solution's is in another, unless `exact`.
    """
    got = read_like(got, want)
    words = write_form(want)
    if want.attempted and not got.attempted:
        return make_finding("unfinished", want=words)
    if got.error or want.error:
        if got.error.partition(":")[0] == want.error.partition(":")[0]:
            return None
        return make_finding("error", got=got.error or "nothing", want=words)
    if got.form == "None" != want.form:
        return make_finding("none", want=words)
    if got.changed != want.changed:
        what = takes[[*got.changed, *want.changed][0]]
        kind = "changed-model" if what == "model" else "changed-input"
        return make_finding(kind, got=f"`{what}`")
    if got.form != want.form:
        return make_finding("type", got=got.form, want=words)
    for i, (ours, right) in enumerate(zip(got.tensors, want.tensors, strict=True)):
        name = returns[i] if i < len(returns) else "result"
        if found := compare(name, ours, right, want.form, exact):
            return found
    for i, (ours, right) in enumerate(zip(got.gradients, want.gradients, strict=True)):
        if right is not None and (found := compare_gradients(takes[i], ours, right)):
            return found
    return None


def write_form(want: Outcome) -> str:
    """Return what is expected, in words."""
    if "tensor" not in want.form:
        return want.form or "no error"
    shapes = ", ".join(str(tuple(x.shape)) for x in want.tensors)
    return f"{want.form} of shape {shapes}"


def compare(
    name: str, ours: Tensor, right: Tensor, form: str, exact: bool
) -> Finding | None:
    """Compare one returned tensor with the right one."""
    what = f"`{name}`"
    if ours.shape != right.shape:
        if form.startswith("a list"):
            size = str(len(ours))
            return make_finding("length", what=what, got=size, want=str(len(right)))
        shape = str(tuple(ours.shape))
        return make_finding("shape", what=what, got=shape, want=str(tuple(right.shape)))
    single = ours.dtype == torch.float32 and right.is_floating_point()
    if ours.dtype != right.dtype and (exact or not single):
        kind = name_type(ours)
        return make_finding("dtype", what=what, got=kind, want=name_type(right))
    wrong = differs(ours, right, form)
    if not wrong.any():
        return None
    empty = ours.isnan() & ~right.isnan()
    slug, where = ("nan", empty) if empty.any() else ("numbers", wrong)
    return make_finding(slug, **write_entry(name, ours, right, where))


def compare_gradients(name: str, ours: Tensor | None, right: Tensor) -> Finding | None:
    """Compare the gradients of an input, where the solution has a finite one."""
    ours = torch.zeros_like(right) if ours is None else ours
    wrong = differs(ours, right, least=LEAST_GRADIENT) & right.isfinite()
    if not wrong.any():
        return None
    if not ours.any():
        return make_finding("detached", what=f"`{name}`")
    return make_finding("gradient", **write_entry(name, ours, right, wrong))


def write_entry(
    name: str, ours: Tensor, right: Tensor, where: Tensor
) -> dict[str, str]:
    """Return the first entry where two tensors differ, and both numbers."""
    at = tuple(where.nonzero()[0].tolist())
    place = f"[{', '.join(map(str, at))}]" if at else ""
    got, want = write_number(ours[at].item()), write_number(right[at].item())
    return {"what": f"`{name}{place}`", "got": got, "want": want}
