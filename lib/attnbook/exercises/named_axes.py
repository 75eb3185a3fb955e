"""Inputs of an exercise whose axes have names, and the same of other sizes."""

import typing
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.outcome import Case

FIRST = 2014  # seed of the inputs tried first, the same for everyone
SEQUENCES, QUERIES, KEYS = "B", "T", "S"

Axes = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Inputs:
    """Inputs with the names of their axes; every method returns others.

    Attributes:
        axes: by input.
        given: the inputs, by name.
    """

    axes: Axes
    given: dict[str, object]

    def has_axis(self, axis: str) -> bool:
        """Tell whether a tensor has an axis, or a number is its size."""
        return axis in self.given or any(
            isinstance(x, Tensor) and axis in self.axes[name]
            for name, x in self.given.items()
        )

    def get_size(self, axis: str) -> int:
        """Return the size of an axis."""
        if axis in self.given:
            return int(typing.cast(int, self.given[axis]))
        for name, x in self.given.items():
            for place in self.find_places(name, axis):
                return typing.cast(Tensor, x).shape[place]
        return 1

    def find_places(self, name: str, axis: str) -> list[int]:
        """Return which axes of an input have a name, counted from the end."""
        x, names = self.given[name], self.axes[name]
        if not isinstance(x, Tensor):
            return []
        if names == ("...",):  # a mask, which has an axis or broadcasts over it
            found = [i for i, n in ((-2, QUERIES), (-1, KEYS)) if n == axis]
            return [i for i in found if x.dim() >= -i and x.shape[i] > 1]
        return [i - len(names) for i, n in enumerate(names) if n == axis]

    def change(self, call: Callable[[str, Tensor], Tensor]) -> "Inputs":
        """Return the inputs with each tensor changed by a function."""
        made = {
            name: call(name, x) if isinstance(x, Tensor) else x
            for name, x in self.given.items()
        }
        return Inputs(self.axes, made)

    def replace(self, **given) -> "Inputs":
        """Return the inputs with some of them replaced."""
        return Inputs(self.axes, self.given | given)

    def resize(self, axis: str, size: int) -> "Inputs":
        """Return the inputs with another size of an axis.

        Its entries are some of those there are, in their order, so that padding
        stays at the end; lengths grow and shrink with their sequences.
        """
        if axis in self.given:
            return self.replace(**{axis: size})
        old = self.get_size(axis)
        rng = torch.Generator().manual_seed(FIRST + size)
        order = torch.randperm(old, generator=rng).repeat(-(-size // old))
        index = order[:size].sort().values

        def pick(name: str, x: Tensor) -> Tensor:
            if name == "lengths" and axis == KEYS:
                return ((x * size + old - 1) // old).clamp(1, size).to(x.dtype)
            for place in self.find_places(name, axis):
                x = x.index_select(place, index)
            return x

        return self.change(pick)

    def resize_lead(self, lead: tuple[int, ...]) -> "Inputs":
        """Return the inputs with other axes in front of the named ones."""
        rng = torch.Generator().manual_seed(FIRST + len(lead))
        count = max(1, torch.Size(lead).numel())
        some = next(
            (x, names)
            for name, x in self.given.items()
            if (names := self.axes[name])[:1] == ("*B",) and isinstance(x, Tensor)
        )
        old = some[0].shape[: some[0].dim() - len(some[1]) + 1].numel()
        order = torch.randperm(old, generator=rng).repeat(-(-count // old))
        index = order[:count]

        def pick(name: str, x: Tensor) -> Tensor:
            names = self.axes[name]
            if names == ("...",):
                return x.reshape(-1, *x.shape[-2:])[0] if x.dim() > 2 else x
            if names[:1] != ("*B",):
                return x
            tail = x.shape[x.dim() - len(names) + 1 :]
            return x.reshape(old, *tail)[index].reshape(*lead, *tail)

        return self.change(pick)

    def make_case(self, tries: str, kind: str, **more) -> Case:
        """Return a case with these inputs."""
        return Case(tries, tuple(self.given.values()), kind=kind, **more)
