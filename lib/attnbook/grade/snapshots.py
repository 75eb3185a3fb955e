"""Restores PyTorch, Python and the runner after a student's code has run."""

import base64
import builtins
import contextlib
import copy
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import pickle
import signal
import sys
import time
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional

GRADER = "attnbook.grade"
NAMESPACES = (
    *(torch, torch.Tensor, torch.nn.Module, functional, torch.autograd),
    *(torch.linalg, torch.random, torch.overrides.TorchFunctionMode),
    *(builtins, base64, contextlib, copy, json, os, pickle, signal, time),
)
Change = tuple[Any, str, Any]


class Snapshot:
    """The current contents of namespaces that code may patch.

    Args:
        more: further namespaces.
    """

    def __init__(self, more: Iterable = ()):
        self.private = list(more)
        namespaces = (*NAMESPACES, *self.private)
        self.held = [(namespace, dict(vars(namespace))) for namespace in namespaces]
        self.profile, self.modules = sys.setprofile, dict(sys.modules)

    def restore_modules(self) -> None:
        """Restore the modules that were removed."""
        for name, module in self.modules.items():
            sys.modules.setdefault(name, module)

    def restore(self) -> list[Change]:
        """Restore what was replaced; delete what was added to a class.

        Returns what was changed, for `repeat`.
        """
        self.restore_modules()
        found: list[Change] = []
        if sys.setprofile is not self.profile:
            found.append((sys, "setprofile", sys.setprofile))
            sys.setprofile = self.profile
        for namespace, held in self.held:
            now = dict(vars(namespace))
            for name, value in held.items():
                if now.get(name, self) is not value:
                    setattr(namespace, name, value)
                    if name in now:
                        found.append((namespace, name, now[name]))
            if isinstance(namespace, type):
                for name in now.keys() - held.keys():
                    delattr(namespace, name)
                    found.append((namespace, name, now[name]))
        return found

    def repeat(self, changes: list[Change]) -> None:
        """Make a student's own changes again, as later cells expect them."""
        for namespace, name, value in changes:
            if not any(namespace is x for x in self.private):
                with contextlib.suppress(Exception):
                    setattr(namespace, name, value)


class Inert:
    """Replaces a check or a quiz while a notebook is being graded."""

    def __call__(self, *args, **kwargs) -> "Inert":
        """Do nothing."""
        return self

    def __getattr__(self, name: str) -> "Inert":
        """Return itself for anything but Python's own names."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __repr__(self) -> str:
        return "… not checked yet"


class Check(Inert):
    """Replaces a check: a call hands the attempt over.

    Args:
        hand_over: takes the check's name and the attempt.
        key: the name, as `chapter.check_x`.
    """

    def __init__(self, hand_over: Callable[[str, object], object], key: str):
        self._hand_over, self._key = hand_over, key

    def __call__(self, attempt: object = None, *more, **named) -> Inert:
        """Hand an attempt over."""
        self._hand_over(self._key, attempt)
        return Inert()

    def __getattr__(self, name: str) -> Inert:
        """Return nothing of use for anything but Python's own names."""
        return getattr(Inert(), name)


class EmptyModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `attnbook.exercises` without checks and solutions in it.

    Args:
        hand_over: what a check does with an attempt.

    Attributes:
        checks: the names of the checks of each chapter.
    """

    def __init__(self, hand_over: Callable[[str, object], object]):
        self.hand_over = hand_over
        self.checks: dict[str, list[str]] = {}

    def find_spec(self, name: str, path=None, target=None):
        """Return the spec of an empty module; the grader is not found."""
        if name.startswith(GRADER):
            raise ModuleNotFoundError(f"{name} is not available while grading")
        if f"{name}.".startswith("attnbook.exercises."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Return a module that has every name; a check's hands over."""
        module = types.ModuleType(spec.name)
        chapter = spec.name.split(".")[2:3]

        def find(name: str):
            if not chapter and name in self.checks:
                return importlib.import_module(f"{spec.name}.{name}")
            if chapter and name.startswith("check_"):
                return Check(self.hand_over, f"{chapter[0]}.{name}")
            return getattr(Inert(), name)

        vars(module)["__getattr__"] = find
        if chapter:
            vars(module)["__all__"] = self.checks.get(chapter[0], [])
        return module

    def exec_module(self, module) -> None:
        """Leave it empty."""


def is_hidden(name: str) -> bool:
    """Tell whether a module is hidden from a student's code."""
    return f"{name}.".startswith(("attnbook.exercises.", GRADER))


def hide_modules(finder: EmptyModuleFinder) -> dict[str, types.ModuleType]:
    """Hide the checks and the grader; return the hidden modules."""
    taken = {
        name: sys.modules.pop(name) for name in list(sys.modules) if is_hidden(name)
    }
    for name in ("exercises", "grade"):
        vars(sys.modules["attnbook"]).pop(name, None)
    sys.meta_path.insert(0, finder)
    return taken
