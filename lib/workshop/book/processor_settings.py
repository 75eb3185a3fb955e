"""The instruction sets that this CPU can be asked to use.

Each library reads its own environment variable. MKL and oneDNN ignore a value
whose instructions the processor lacks, so each library is asked what it uses.
ATen obeys such a value, and the operating system stops the process with a
signal.

Source: the variables are documented by oneMKL (Developer Guide, Conditional
    Numerical Reproducibility Control), by PyTorch (Threading Environment
    Variables; `aten/src/ATen/native/DispatchStub.cpp`) and by oneDNN (CPU
    Dispatcher Control)
"""

import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

X86 = ("x86_64", "amd64", "i386", "i686")
# Each value, and what the library reports under it; the oldest value first.
KNOWN = {
    "MKL_CBWR": {x: x for x in ("COMPATIBLE", "SSE4_2", "AVX2", "AVX512")},
    "ATEN_CPU_CAPABILITY": {
        "default": "DEFAULT",
        "avx2": "AVX2",
        "avx512": "AVX512",
    },
    "ONEDNN_MAX_CPU_ISA": {
        "SSE41": "Intel SSE4.1",
        "AVX2": "Intel AVX2",
        "AVX512_CORE": "Intel AVX-512 with AVX512BW, AVX512VL, and AVX512DQ extensions",
    },
}
REPORTS = {
    "MKL_CBWR": r"^MKL_VERBOSE .*\bCNR:(\S+)",
    "ATEN_CPU_CAPABILITY": r"^capability (.+)",
    "ONEDNN_MAX_CPU_ISA": r"^onednn_verbose,.*\bcpu,isa:(.+)",
    "OMP_NUM_THREADS": r"^threads (\d+)",
}
# A matrix product runs MKL, an LSTM runs oneDNN, and the functions run ATen,
# which fails only when it computes with instructions that the processor lacks.
PROBE = """
import torch
print("capability", torch.backends.cpu.get_cpu_capability())
print("threads", torch.get_num_threads())
with torch.no_grad():
    x = torch.ones(64, 64) @ torch.ones(64, 64)
    torch.nn.LSTM(8, 8)(torch.ones(3, 2, 8))
    x.sigmoid() + x.erf() + x.exp() + x.softmax(-1) + x.sum(0)
"""


@dataclass(frozen=True)
class Setting:
    """Environment variables to run under, and how many threads."""

    name: str
    variables: tuple[tuple[str, str], ...] = ()
    threads: int = 1

    def make_environment(self) -> dict[str, str]:
        """Return this process's environment, changed to the setting."""
        kept = {k: v for k, v in os.environ.items() if k not in KNOWN}
        threads = str(self.threads)
        return kept | {"OMP_NUM_THREADS": threads} | dict(self.variables)


def list_settings() -> list[Setting]:
    """Return every setting, in the order in which they are run."""
    plain = tuple((name, next(iter(KNOWN[name]))) for name in KNOWN)
    alone = [
        Setting(f"{name}={value}", ((name, value),))
        for name, values in KNOWN.items()
        for value in values
    ]
    return [
        Setting("default"),
        Setting("plainest", plain),
        *alone,
        Setting("default-2-threads", threads=2),
        Setting("plainest-2-threads", plain, threads=2),
    ]


def choose_settings(words: Sequence[str]) -> list[Setting]:
    """Return the settings with these names, or all if no name is given.

    Raises:
        ValueError: for a name that is no setting; it lists the known ones.
    """
    named = {setting.name: setting for setting in list_settings()}
    for word in words:
        variable, _, value = word.partition("=")
        if variable in KNOWN and value not in KNOWN[variable]:
            raise ValueError(
                f"{variable} has no value {value!r} that this command knows; "
                f"the known ones are {', '.join(KNOWN[variable])}"
            )
        if word not in named:
            raise ValueError(
                f"{word!r} is no processor setting; the known ones are "
                f"{', '.join(named)}"
            )
    return [s for s in named.values() if not words or s.name in words]


def parse_reports(text: str) -> dict[str, str]:
    """Return what each library reports that it uses, by variable.

    A variable whose library says nothing is left out.
    """
    found = {name: re.search(x, text, re.M) for name, x in REPORTS.items()}
    return {name: x[1].strip() for name, x in found.items() if x}


class MissingInstructionsError(RuntimeError):
    """The processor lacks an instruction that a setting asks for."""


def probe_libraries(setting: Setting) -> str:
    """Return what the libraries print when they compute under a setting.

    Raises:
        MissingInstructionsError: if they use instructions that the processor
            lacks.
        RuntimeError: if they cannot compute for another reason.
    """
    verbose = {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=setting.make_environment() | verbose,
        capture_output=True,
        text=True,
    )
    if done.returncode == -signal.SIGILL:
        raise MissingInstructionsError(
            "it chooses instructions that this processor lacks"
        )
    if done.returncode:
        raise RuntimeError(
            f"PyTorch does not compute under {setting.name}: "
            f"{done.stderr.strip().splitlines()[-1:]}"
        )
    return done.stdout


def find_obstacle(
    setting: Setting,
    machine: str = platform.machine(),
    ask: Callable[[Setting], str] = probe_libraries,
) -> str:
    """Return why a setting cannot be tried on a machine; "" where it can.

    Args:
        setting: the setting.
        machine: the kind of processor, as `platform.machine` names it.
        ask: returns what the libraries print under a setting. MKL and oneDNN
            ignore a value that the processor lacks, so they are asked what they
            use; ATen obeys it and is stopped.
    """
    if setting.variables and machine.lower() not in X86:
        return f"it chooses x86 instructions, and this processor is {machine}"
    wanted = {name: KNOWN[name][value] for name, value in setting.variables}
    wanted["OMP_NUM_THREADS"] = str(setting.threads)
    try:
        used = parse_reports(ask(setting))
    except MissingInstructionsError as error:
        return str(error)
    for name, value in wanted.items():
        if name not in used:
            return f"this PyTorch has no library that reads {name}"
        if used[name] != value:
            asked = setting.make_environment()[name]
            return f"{name}={asked} was ignored: {used[name]} is used"
    return ""
