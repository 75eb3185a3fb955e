"""Restores PyTorch, Python and the runner after a student's code has run."""

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

GRADER = "attnbook.grade"
NAMESPACES = (
    *(torch, torch.Tensor, torch.nn.Module, functional, torch.autograd),
    *(torch.linalg, torch.random, torch.overrides.TorchFunctionMode),
    *(builtins, base64, contextlib, copy, json, pickle, signal, time),
)


class Snapshot:
    """The current contents of namespaces that code may patch.

    Args:
        more: further namespaces.
    """

    def __init__(self, more: Iterable = ()):
        namespaces = (*NAMESPACES, *more)
        self.held = [
            (namespace, dict(vars(namespace))) for namespace in namespaces
        ]
        self.profile, self.modules = sys.setprofile, dict(sys.modules)

    def restore_modules(self) -> None:
        """Restore the modules that were removed."""
        for name, module in self.modules.items():
            sys.modules.setdefault(name, module)

    def restore(self) -> None:
        """Restore what was replaced; delete what was added to a class."""
        self.restore_modules()
        for namespace, held in self.held:
            now = dict(vars(namespace))
            for name, value in held.items():
                if now.get(name, self) is not value:
                    setattr(namespace, name, value)
            if isinstance(namespace, type):
                for name in now.keys() - held.keys():
                    delattr(namespace, name)
        sys.setprofile = self.profile


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


class EmptyModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `attnbook.exercises` without checks and solutions in it."""

    def find_spec(self, name: str, path=None, target=None):
        """Return the spec of an empty module; the grader is not found."""
        if name.startswith(GRADER):
            raise ModuleNotFoundError(f"{name} is not available while grading")
        if f"{name}.".startswith("attnbook.exercises."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """Return a module that has every name."""
        module = types.ModuleType(spec.name)
        inert = Inert()
        vars(module)["__getattr__"] = lambda name: getattr(inert, name)
        return module

    def exec_module(self, module) -> None:
        """Leave it empty."""


def is_hidden(name: str) -> bool:
    """Tell whether a module is hidden from a student's code."""
    return f"{name}.".startswith(("attnbook.exercises.", GRADER))


def hide_modules() -> dict[str, types.ModuleType]:
    """Hide the checks and the grader; return the hidden modules."""
    taken = {
        name: sys.modules.pop(name)
        for name in list(sys.modules)
        if is_hidden(name)
    }
    for name in ("exercises", "grade"):
        vars(sys.modules["attnbook"]).pop(name, None)
    sys.meta_path.insert(0, EmptyModuleFinder())
    return taken
