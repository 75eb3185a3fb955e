"""Calls of an answer on cases, as data; and how two of them are compared."""

import ast
import copy
import functools
import importlib
import inspect
import numbers
import sys
import textwrap
from collections.abc import Callable, Sequence
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
from attnbook.exercises.verdict import (
    Finding,
    make_finding,
    name_type,
    write_pair,
)

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


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Attributes:
        tries: what it tries, in words that follow "Tried".
        inputs: of the call.
        gradient: whether gradients are compared; unless given, if an input is a
            tensor in single precision.
        memory: how many bytes the call may hold at once, if that counts.
    """

    tries: str
    inputs: tuple
    gradient: bool | None = None
    memory: int | None = None

    @property
    def has_gradient(self) -> bool:
        """Whether gradients are compared."""
        if self.gradient is not None:
            return self.gradient
        return any(
            isinstance(x, Tensor) and x.dtype == torch.float32 for x in self.inputs
        )


@dataclass(frozen=True)
class Outcome:
    """What one call gave, as data: texts, numbers and tensors.

    Attributes:
        form: what kind of thing was returned, in words.
        tensors: what was returned; numbers and lists of numbers become tensors.
        gradients: one for each floating-point input, None where none arrives.
        floating: the places of these inputs.
        changed: the places of the inputs that the call changed.
        error: what was raised, in one line.
        stopped: the slug of the limit it ran into.
        used: the name of a ready-made function that it called.
        attempted: False if it is still a stub.
    """

    form: str = ""
    tensors: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor | None, ...] = ()
    floating: tuple[int, ...] = ()
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

    Args:
        answer: the learner's.
        cases: of the calls.
        guard: refuses what the exercise forbids.
        read: returns what is compared of what an answer returned.
        again: whether a second round is to find randomness and state; what the
            answer prints in its first call is then shown.
    """
    stopped = False

    def call_all(nth: int, shown: int = 0) -> tuple[Outcome, ...]:
        nonlocal stopped
        outcomes: list[Outcome] = []
        for place, case in enumerate(cases):
            if stopped:
                break
            if nth:
                case = without_limit(case, first[place])
            with limit_output(0 if place else shown):
                outcomes.append(run(answer, case, SEEDS[nth], guard, read))
            stopped = bool(outcomes[-1].stopped)
        return tuple(outcomes)

    first = call_all(0, SHOWN if again else 0)
    if not again or stopped:
        return (first,)
    second = call_all(1)
    if stopped or all(map(did_the_same, first, second)):
        return first, second
    return first, second, call_all(2)


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
    places = [
        i
        for i, x in enumerate(given)
        if case.has_gradient and isinstance(x, Tensor) and x.is_floating_point()
    ]
    leaves = [given[i].requires_grad_() for i in places]
    for i in places:
        preload_backward()
        given[i] = given[i].clone()  # may be overwritten, and we would see it
    try:
        with limit_time():
            returned = call(answer, given, case, guard, read)
            form, tensors = read_result(returned)
            gradients = compute_gradients(tensors, leaves)
            tensors = tuple(copy_numbers(x) for x in tensors)
    except KeyboardInterrupt:
        raise
    except Stopped as limit:
        return Outcome(stopped=limit.slug)
    except BaseException as raised:  # an answer may raise anything
        if guard and guard.used:
            return Outcome(used=guard.used[0])
        if is_stub_error(raised):
            return Outcome(attempted=False)
        return Outcome(error=format_error(raised))
    if guard and guard.used:
        return Outcome(used=guard.used[0])
    if returned is ... or (returned is None and is_empty_function(answer)):
        return Outcome(attempted=False)
    pairs = enumerate(zip(given, case.inputs, strict=True))
    changed = tuple(i for i, (now, before) in pairs if not is_unchanged(now, before))
    return Outcome(form, tensors, gradients, tuple(places), changed)


def call(
    answer: Callable,
    given: list,
    case: Case,
    guard: Guard | None,
    read: Callable,
) -> object:
    """Return what an answer returns, or what is compared of it."""
    if guard:
        with guard:
            return call(answer, given, case, None, read)
    if case.memory:
        with MemoryLimit(case.memory):
            returned = answer(*given)
    else:
        returned = answer(*given)
    return returned if returned is None else read(returned, *given)


@functools.cache
def preload_backward() -> None:
    """Import what PyTorch's first backward pass imports, which takes seconds.

    Cut short by an alarm, an import stays broken.
    """
    importlib.import_module("torch.fx.experimental.symbolic_shapes")


def read_result(returned: Any) -> tuple[str, tuple[Tensor, ...]]:
    """Return the kind of a result, in words, and its tensors."""
    if isinstance(returned, Tensor):
        if returned.dim() == 0 and returned.dtype == torch.bool:
            return "a boolean", (returned,)
        return "a tensor", (returned,)
    several = isinstance(returned, tuple | list) and bool(returned)
    if several and all(isinstance(x, Tensor) for x in returned):
        kind = "" if isinstance(returned, tuple) else "a list of "
        plural = "s" if len(returned) > 1 else ""
        return f"{kind}{len(returned)} tensor{plural}", tuple(returned)
    if returned is None:
        return "None", ()
    if is_boolean(returned):
        return "a boolean", (torch.tensor(bool(returned)),)
    if isinstance(returned, numbers.Real):
        return "a number", (make_numbers([returned]).reshape(()),)
    if isinstance(returned, tuple | list):
        kind = type(returned).__name__
        found = [x.item() if getattr(x, "shape", None) == () else x for x in returned]
        if all(map(is_boolean, found)) and found:
            return "a list of booleans", (torch.tensor([bool(x) for x in found]),)
        if all(isinstance(x, numbers.Real) for x in found):
            return "a list of numbers", (make_numbers(found),)
        return f"a {kind} of {', '.join(type(x).__name__ for x in returned)}", ()
    numpy = sys.modules.get("numpy")
    if numpy and type(returned) is numpy.ndarray and returned.dtype.kind in "iuf":
        exact = torch.float64 if returned.dtype.kind == "f" else torch.int64
        return "a NumPy array", (torch.tensor(returned.tolist(), dtype=exact),)
    return f"an object of type {type(returned).__name__}", ()


def is_boolean(x: object) -> bool:
    """Tell whether something is a truth value of Python or of NumPy."""
    return isinstance(x, bool) or type(x).__name__ in ("bool_", "bool")


def make_numbers(found: Sequence) -> Tensor:
    """Return numbers in double precision, or as integers if all are whole."""
    if all(float(x).is_integer() and abs(x) < 2**63 for x in found):
        return torch.tensor([int(x) for x in found], dtype=torch.int64)
    return torch.tensor([float(x) for x in found], dtype=torch.float64)


def compute_gradients(
    output: Sequence[Tensor], leaves: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the leaves under fixed upstream gradients."""
    ends = [x for x in output if x.requires_grad] if leaves else []
    if not ends:
        return (None,) * len(leaves)
    steps = [torch.arange(1, x.numel() + 1).view(x.shape) for x in ends]
    upstream = [n.double().sin().to(x) for n, x in zip(steps, ends, strict=True)]
    found = torch.autograd.grad(ends, leaves, upstream, allow_unused=True)
    return tuple(None if g is None else copy_numbers(g) for g in found)


def copy_numbers(x: Tensor) -> Tensor:
    """Return a tensor's numbers without graph, device and layout."""
    x = x.detach().cpu()
    return (x if x.layout == torch.strided else x.to_dense()).clone()


def is_unchanged(now: Any, before: Any) -> bool:
    """Tell whether an input is still what it was, to the last bit.

    Functions and other objects that an answer can only call are not compared.
    """
    if type(now) is not type(before):
        return False
    if isinstance(before, Tensor):
        if now.shape != before.shape or now.dtype != before.dtype:
            return False
        now = now.detach()
        same = (now == before) | (now.isnan() & before.isnan())
        return torch.equal(now, before) or bool(same.all())
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


def is_stub_error(raised: BaseException) -> bool:
    """Tell a stub's NotImplementedError from those that PyTorch raises."""
    torchs = ("not implemented for", 'required "forward"', "Could not run", "Cannot")
    return isinstance(raised, NotImplementedError) and not any(
        words in str(raised) for words in torchs
    )


def is_empty_function(answer: Callable) -> bool:
    """Tell whether the body of a function is still `...` or `pass`."""
    try:
        source = textwrap.dedent(inspect.getsource(answer))
        function = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    # A docstring and `...` are expressions that are constants.
    return isinstance(function, ast.FunctionDef) and all(
        isinstance(x, ast.Pass)
        or (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))
        for x in function.body
    )


def format_error(raised: BaseException) -> str:
    """Return an error as `Type: the first line of its message`, kept short."""
    first = next(iter(str(raised).strip().splitlines()), "")
    return f"{type(raised).__name__}: {first}"[:200].rstrip(": .")


def did_the_same(a: Outcome, b: Outcome) -> bool:
    """Tell whether two calls gave the same, up to rounding."""
    if a.error or b.error:
        return a.error.partition(":")[0] == b.error.partition(":")[0]
    if (a.stopped, a.attempted) != (b.stopped, b.attempted):
        return False
    a = read_like(a, b)
    pairs = list(zip(a.tensors, b.tensors, strict=False))
    gradients = zip(a.gradients, b.gradients, strict=False)
    return (
        (a.form, a.changed) == (b.form, b.changed)
        and len(a.tensors) == len(b.tensors)
        and all(x.shape == y.shape and x.dtype == y.dtype for x, y in pairs)
        and not any(differs(x, y, b.form).any() for x, y in pairs)
        and not any(
            differs(*fill_gradients(x, y), least=LEAST_GRADIENT).any()
            for x, y in gradients
            if x is not None or y is not None
        )
    )


def fill_gradients(x: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return two gradients; where none arrived, it is zero."""
    return (
        torch.zeros_like(y) if x is None else x,
        torch.zeros_like(x) if y is None else y,
    )


def differs(
    ours: Tensor, right: Tensor, form: str = "a tensor", least: float = 0.01
) -> Tensor:
    """Return True where two tensors of one shape differ beyond rounding.

    Args:
        ours: of the answer.
        right: of the solution, which the bound is for.
        form: of the result: Python's numbers count each by itself, because they
            may differ much in size.
        least: what counts as the largest number of a tensor at least.
    """
    if not right.is_floating_point() and not ours.is_floating_point():
        return ours != right
    kind, ours, right = right.dtype, ours.double(), right.double()
    sizes = right.abs().masked_fill(~right.isfinite(), 0.0)
    if form in NUMBERS:
        bound = NUMBER_BOUND * sizes + 1e-9
    else:
        bound = sizes.amax().clamp(min=least) if sizes.numel() else sizes
        bound = BOUND.get(kind, USUAL_BOUND) * bound
    same = (ours == right) | (ours.isnan() & right.isnan())
    return ~same & ~((ours - right).abs() <= bound)


def read_like(got: Outcome, want: Outcome) -> Outcome:
    """Return an outcome whose numbers are held as the right ones are.

    A list of tensors counts as a tuple. A number may be a tensor or an array with
    one entry, and a list of numbers may be one with one axis, or hold tensors with
    one entry each.
    """
    found, form = got.tensors, want.form
    if got.form == form or not found:
        return got
    if got.form == f"a list of {form}":
        return replace(got, form=form)
    if form not in (*NUMBERS, "a boolean"):
        return got
    several = got.form.endswith(("tensor", "tensors")) and got.form != "a tensor"
    if form == "a list of numbers" and several and all(x.dim() == 0 for x in found):
        found = (torch.stack([x.double() for x in found]),)
    x = found[0]
    boolean = x.dtype == torch.bool
    if len(found) > 1 or x.is_complex() or boolean != (form == "a boolean"):
        return got
    if form != "a list of numbers":
        if x.numel() != 1 or got.form not in ("a tensor", "a NumPy array"):
            return got
        x = x.reshape(())
    elif x.dim() != 1:
        return got
    if not boolean:
        x = make_numbers(x.flatten().tolist()).reshape(x.shape)
    return replace(got, form=form, tensors=(x,), gradients=want.gradients)


def find_difference(
    got: Outcome,
    want: Outcome,
    takes: Sequence[str],
    returns: Sequence[str],
    same_type: bool = False,
) -> Finding | None:
    """Return the first thing that is wrong with an outcome, or None.

    Args:
        got: what the answer did.
        want: what the solution did.
        takes: the names of the inputs.
        returns: the names of the outputs.
        same_type: whether a result in single precision is wrong where the
            solution's is in another.
    """
    got = read_like(got, want)
    words = write_form(want)
    if not got.attempted:
        return make_finding("unfinished", want=words)
    if got.stopped:
        return make_finding(got.stopped)
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
    names = [returns[i] if i < len(returns) else "result" for i in range(9)]
    for name, ours, theirs in zip(names, got.tensors, want.tensors, strict=False):
        if found := compare(name, ours, theirs, want.form, same_type):
            return found
    gradients = zip(want.floating, got.gradients, want.gradients, strict=False)
    for place, given, right in gradients:
        if right is not None and (
            found := compare_gradients(takes[place], given, right)
        ):
            return found
    return None


def write_form(want: Outcome) -> str:
    """Return what is expected, in words."""
    if "tensor" not in want.form:
        return want.form or "no error"
    shapes = ", ".join(str(tuple(x.shape)) for x in want.tensors)
    return f"{want.form} of shape {shapes}"


def compare(
    name: str, ours: Tensor, right: Tensor, form: str, same_type: bool
) -> Finding | None:
    """Compare one returned tensor with the right one."""
    what = f"`{name}`"
    if ours.shape != right.shape:
        if form == "a list of numbers":
            sizes = str(len(ours)), str(len(right))
            return make_finding("length", what=what, got=sizes[0], want=sizes[1])
        shapes = str(tuple(ours.shape)), str(tuple(right.shape))
        return make_finding("shape", what=what, got=shapes[0], want=shapes[1])
    single = ours.dtype == torch.float32 and right.is_floating_point()
    if ours.dtype != right.dtype and form not in NUMBERS and (same_type or not single):
        types = name_type(ours), name_type(right)
        return make_finding("dtype", what=what, got=types[0], want=types[1])
    wrong = differs(ours, right, form)
    if not wrong.any():
        return None
    empty = ours.isnan() & ~right.isnan()
    entry, got, want = write_entry(name, ours, right, empty if empty.any() else wrong)
    return make_finding(
        "nan" if empty.any() else "numbers", what=entry, got=got, want=want
    )


def compare_gradients(name: str, given: Tensor | None, right: Tensor) -> Finding | None:
    """Compare the gradients of an input, where the solution has a finite one."""
    ours = torch.zeros_like(right) if given is None else given
    wrong = differs(ours, right, least=LEAST_GRADIENT) & right.isfinite()
    if not wrong.any():
        return None
    if not ours.any():
        return make_finding("detached", what=f"`{name}`")
    entry, got, want = write_entry(name, ours, right, wrong)
    return make_finding("gradient", what=entry, got=got, want=want)


def write_entry(
    name: str, ours: Tensor, right: Tensor, where: Tensor
) -> tuple[str, str, str]:
    """Return the first entry where two tensors differ, and both numbers."""
    at = tuple(where.nonzero()[0].tolist())
    place = f"[{', '.join(map(str, at))}]" if at else ""
    return f"`{name}{place}`", *write_pair(ours[at].item(), right[at].item())
