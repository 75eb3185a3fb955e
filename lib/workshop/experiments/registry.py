"""Registration of experiments, each in the module that defines it.

A function that measures something is decorated with `record.recorded`, and one that
writes its record by itself with `experiment`; training runs that share one procedure
are given to `register_runs`. `find_experiments` imports every module of this package,
so that a new theme is one new file.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from attnbook.training.run import Run


@dataclass(frozen=True)
class Experiment:
    """A recorded run that is a function of its own.

    Attributes:
        run: measures, writes the record and returns it.
        on_cpu: whether it measures this machine's processor or reads a file,
            so that it never uses a GPU.
    """

    run: Callable[[], dict]
    on_cpu: bool


EXPERIMENTS: dict[str, Experiment] = {}
RUNS: dict[str, Run] = {}
HOMES: dict[str, str] = {}


def claim(name: str, module: str) -> None:
    """Note which module defines an experiment.

    Raises:
        ValueError: if two modules define one of the same name.
    """
    first = HOMES.setdefault(name, module)
    if first != module:
        raise ValueError(
            f"two experiments are named {name!r}: in {first} and in {module}"
        )


def experiment(on_cpu: bool = False) -> Callable:
    """Register a function as the experiment of its name."""

    def register(function: Callable[[], dict]) -> Callable[[], dict]:
        name, home = function.__name__, function.__module__
        if home == "__main__":  # run as a script: imported again by its name
            return function
        claim(name, home)
        EXPERIMENTS[name] = Experiment(function, on_cpu)
        return function

    return register


def register_runs(runs: Mapping[str, Run], module: str) -> None:
    """Register training runs by the names of their records."""
    for name, run in runs.items():
        claim(name, module)
        RUNS[name] = run


def find_experiments() -> list[str]:
    """Import every module of this package; return the names registered."""
    here = Path(__file__).parent
    package = __name__.rpartition(".")[0]
    for found in pkgutil.iter_modules([str(here)]):
        if found.name != "__main__":
            importlib.import_module(f"{package}.{found.name}")
    return [*RUNS, *EXPERIMENTS]
