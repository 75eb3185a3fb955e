"""The options of a kernel's case, as keyword arguments."""

from dataclasses import asdict


def read_options(options):
    return {k: getattr(options, k) for k in asdict(options)}
