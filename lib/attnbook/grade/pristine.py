"""PyTorch, Python and the runner as they were before a student's code ran.

Chapter: all of them
Source: none
Axes: none
"""

import base64
import builtins
import contextlib
import copy
import importlib.abc
import importlib.machinery
import json
import pickle
import signal
import sys
import time
import types
from collections.abc import Iterable

import torch
from torch.nn import functional

GONE = ("attnbook.solutions", "attnbook.grade")
PLACES = (
    *(torch, torch.Tensor, torch.nn.Module, functional, torch.autograd),
    *(torch.linalg, torch.random, torch.overrides.TorchFunctionMode),
    *(builtins, base64, contextlib, copy, json, pickle, signal, time),
)


class Snapshot:
    """What the places that people patch hold now.

    Args:
        more: further places.
    """

    def __init__(self, more: Iterable = ()):
        places = (*PLACES, *more)
        self.held = [(place, dict(vars(place))) for place in places]
        self.profile, self.modules = sys.setprofile, dict(sys.modules)

    def restore_modules(self) -> None:
        """Put back the modules that were removed."""
        for name, module in self.modules.items():
            sys.modules.setdefault(name, module)

    def restore(self) -> None:
        """Put back what was replaced; what was added to a class goes."""
        self.restore_modules()
        for place, held in self.held:
            now = dict(vars(place))
            for name, value in held.items():
                if now.get(name, self) is not value:
                    setattr(place, name, value)
            if isinstance(place, type):
                for name in now.keys() - held.keys():
                    delattr(place, name)
        sys.setprofile = self.profile


class Inert:
    """Stands for a check or a quiz while a notebook is being graded."""

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


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `attnbook.exercises` without checks and solutions in it."""

    def find_spec(self, name: str, path=None, target=None):
        """Return a place for an empty module; the solutions are not here."""
        if name.startswith(GONE):
            raise ModuleNotFoundError(f"{name} is not here while grading")
        if f"{name}.".startswith("attnbook.exercises."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Return a module that has every name."""
        module = types.ModuleType(spec.name)
        inert = Inert()
        module.__getattr__ = lambda name: getattr(inert, name)
        return module

    def exec_module(self, module) -> None:
        """Leave it empty."""


def hidden(name: str) -> bool:
    """Tell whether a module is taken out of a student's reach."""
    return f"{name}.".startswith(("attnbook.exercises.", *GONE))


def hide() -> dict[str, types.ModuleType]:
    """Take the checks and the grader out of reach; return what was taken."""
    taken = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if hidden(name)
    }
    for name in ("exercises", "solutions", "grade"):
        vars(sys.modules["attnbook"]).pop(name, None)
    sys.meta_path.insert(0, Empty())
    return taken
