"""The cost calculator: one layer's attention in numbers, for a known model.

Source: see `attnbook.profiling.roofline` and `attnbook.profiling.roofline`
Axes: B sequences, H heads, G groups (key-value heads), D width of a head
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from html import escape
from pathlib import Path

import traitlets

from attnbook.profiling.roofline import (
    DEVICES,
    MODELS,
    PHASES,
    Device,
    Machine,
    Model,
    calculate,
)
from attnbook.profiling.steps import Block
from attnbook.widgets.base import BookWidget

HERE = Path(__file__)
ITEMSIZES = {4: "float32", 2: "16-bit floats"}
PHASE_DESCRIPTIONS = {
    "prefill": "prefills {n} positions",
    "train": "trains on {n} positions",
    "decode": "decodes position {n}",
}
UNITS = ("", "k", "M", "G", "T", "P", "E")


def format_number(x: int | float, unit: str) -> str:
    """Return a number in three digits, with a unit that fits."""
    power = 0
    while x >= 999.5 and power < len(UNITS) - 1:
        x, power = x / 1000, power + 1
    digits = 0 if x >= 99.95 or x == 0 else 1 if x >= 9.995 else 2
    return f"{x:.{digits}f} {UNITS[power]}{unit}".strip()


def format_duration(seconds: float) -> str:
    """Return a time in three digits, with a unit that fits."""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return format_number(seconds / size, "").strip() + f" {unit}"
    return format_number(seconds * 1e9, "").strip() + " ns"


class CostCalculator(BookWidget):
    """What attention costs for a model's sizes on a device's ceilings.

    Args:
        model: the name of one of the models.
        device: the name of one of the devices.
        phase: "prefill", "train" or "decode".
        n: length of the sequence; the model's own unless given.
        batch: how many sequences.
        heads: heads of queries; the model's own unless given.
        groups: heads of keys and values; the model's own unless given.
        itemsize: bytes of a number, 2 or 4.
        models: by name, what can be chosen.
        devices: likewise.

    Raises:
        ValueError: if a name is unknown or groups do not divide the heads;
            traitlets.TraitError if a number is out of range.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    models = traitlets.List().tag(sync=True)
    devices = traitlets.List().tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)
    device = traitlets.Unicode().tag(sync=True)
    phase = traitlets.Enum(PHASES, "decode").tag(sync=True)
    n = traitlets.Int(32768, min=1, max=2**21).tag(sync=True)
    batch = traitlets.Int(1, min=1, max=4096).tag(sync=True)
    heads = traitlets.Int(min=1, max=1024).tag(sync=True)
    groups = traitlets.Int(min=1, max=1024).tag(sync=True)
    itemsize = traitlets.Enum(tuple(ITEMSIZES), 2).tag(sync=True)

    def __init__(
        self,
        model: str = "Llama 3.1 8B",
        device: str = "B200 (HGX)",
        heads: int = 0,
        groups: int = 0,
        models: Mapping[str, Model] = MODELS,
        devices: Mapping[str, Device] = DEVICES,
        **traits,
    ):
        for name, known in ((model, models), (device, devices)):
            if name not in known:
                raise ValueError(f"{name!r} is none of {sorted(known)}")
        block = models[model].block
        super().__init__(
            models=[describe_model(x, m) for x, m in models.items()],
            devices=[describe_device(x, d) for x, d in devices.items()],
            model=model,
            device=device,
            heads=heads or block.H,
            groups=groups or heads or block.G,
            **traits,
        )
        self.numbers()

    def machine(self) -> Machine:
        """Return the ceilings of the device, for the size of number."""
        (found,) = (x for x in self.devices if x["name"] == self.device)
        return Machine(found["rates"][str(self.itemsize)], found["bandwidth"])

    def block(self) -> Block:
        """Return the model's blocks, with the heads that were chosen."""
        (found,) = (x for x in self.models if x["name"] == self.model)
        sizes = {k: found[k] for k in ("C", "H", "G", "D", "hidden", "gated")}
        made = Block(**sizes, L=found["L"])
        return replace(made, H=self.heads, G=self.groups)

    def numbers(self) -> dict[str, int | float]:
        """Return what one layer's attention costs."""
        sizes = self.phase, self.batch, self.n, self.itemsize
        return calculate(self.block(), self.machine(), *sizes)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return each number in words, step by step and fused."""
        found = self.numbers()

        def both(name: str, say) -> tuple[str, str]:
            return say(found[name]), say(found[f"{name}_fused"])

        intensity, intensity_fused = (
            format_number(found[f"flops{x}"] / found[f"bytes{x}"], "")
            for x in ("", "_fused")
        )
        return [
            ("operations", *both("flops", lambda x: format_number(x, "FLOP"))),
            ("bytes moved", *both("bytes", lambda x: format_number(x, "B"))),
            ("operations per byte", intensity, intensity_fused),
            (
                "peak memory",
                *both("memory", lambda x: format_number(x, "B")),
            ),
            ("time, at least", *both("seconds", format_duration)),
        ]

    def fallback(self) -> str:
        """Return the numbers as a table."""
        found = self.numbers()
        body = "".join(
            f"<tr><th scope='row'>{name}</th><td>{steps}</td><td>{one}</td></tr>"
            for name, steps, one in self.rows()
        )
        does = PHASE_DESCRIPTIONS[self.phase].format(n=self.n)
        return (
            f"<figure><figcaption>One layer of {escape(self.model)} {does} of "
            f"{self.batch} texts in {ITEMSIZES[self.itemsize]} on "
            f"{escape(self.device)}: {self.heads} heads, {self.groups} of keys "
            "and values</figcaption><table><thead><tr><th></th><th>step by step"
            f"</th><th>fused</th></tr></thead><tbody>{body}</tbody></table>"
            "<p>Keys and values of all layers: "
            f"{format_number(found['cache'], 'B')}. "
            f"Attention is {100 * found['share']:.0f} % of the block's "
            "products.</p></figure>"
        )


def describe_model(name: str, model: Model) -> dict:
    """Return a model as JSON carries it."""
    more = {"length": model.length, "source": model.source}
    return {"name": name, **asdict(model.block), **more}


def describe_device(name: str, device: Device) -> dict:
    """Return a device as JSON carries it."""
    made = asdict(device)
    made["rates"] = {str(size): rate for size, rate in device.rates.items()}
    return {"name": name, **made}
