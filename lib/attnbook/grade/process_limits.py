"""Limits on the process that runs a student's code.

Time, memory, the size of files and how many are open are limited by POSIX;
Linux adds namespaces without a network and without other processes, forbids
writing outside the folder and signals to other processes (`landlock`), and
refuses sockets, changes of files' attributes and memory that no limit counts
(`seccomp`). A limit that the platform lacks is left out; `apply_limits` returns
the names of those that are in force.
"""

import contextlib
import ctypes
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from attnbook.exercises.limits import SECONDS
from attnbook.grade import landlock, seccomp

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # Windows has no such module

# Of the environment, only what Python, its libraries and locale need.
KEPT_VARIABLES = (
    *("PATH", "LANG", "LC_", "TZ", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("DYLD_", "SYSTEMROOT", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_"),
    *("ATEN_", "DNNL_", "ONEDNN_", "GLIBC_TUNABLES", "MPL", "COVERAGE"),
)
NPROC = getattr(resource, "RLIMIT_NPROC", None)
NEW_USER, NEW_PID, NEW_NET, NEW_IPC = 1 << 28, 1 << 29, 1 << 30, 1 << 27


@dataclass(frozen=True)
class Limits:
    """Seconds per cell, call, answer and notebook; megabytes of memory, file.

    An answer is called on every case of its exercise. `grace` is what the
    grader waits beyond three times a cell's seconds; on a busy machine it
    waits longer. `processes`, threads among them, are limited where they can
    be counted.
    """

    cell: float = 60.0
    whole: float = 300.0
    call: float = SECONDS
    answer: float = 45.0
    grace: float = 10.0
    memory: int = 4096
    file: int = 64
    processes: int = 128


def apply_limits(folder: str, limits: Limits) -> list[str]:
    """Apply every limit that this platform has; return their names.

    Where there are namespaces, the process that returns is a new one.
    """
    up = ["time"]
    os.chdir(folder)
    clear_environment(folder)
    root = hasattr(os, "getuid") and os.getuid() == 0
    if apart := enter_namespaces():
        up.append("signals to others")
    if hasattr(os, "setsid"):
        os.setsid()
    if resource:
        seconds = int(limits.whole) + 1
        set_limit(resource.RLIMIT_CPU, seconds)
        set_limit(resource.RLIMIT_CORE, 0)
        set_limit(resource.RLIMIT_NOFILE, 256)
        if set_limit(resource.RLIMIT_FSIZE, limits.file * 2**20):
            up.append("size of files")
        room = limits.memory * 2**20 + read_address_space_size()
        if sys.platform == "linux" and set_limit(resource.RLIMIT_AS, room):
            up.append("memory")
        # A namespace counts only its own processes; root's are never counted.
        own = apart and not root
        if own and NPROC is not None and set_limit(NPROC, limits.processes):
            up.append("number of processes")
    apart = apart or separate_network()
    up += landlock.restrict_writes(folder)
    up += (refused := seccomp.refuse_system_calls())
    if not (apart or refused):
        disable_python_sockets()
    whole = apart or bool(refused)
    return [*up, "network" if whole else "network (Python's only)"]


def select_environment() -> dict[str, str]:
    """Return the part of the environment that a student's code may read."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper().startswith(KEPT_VARIABLES)
    }
    # Threads of OpenMP would not survive the fork for an attempt.
    return {**kept, "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}


def clear_environment(folder: str) -> None:
    """Remove every other variable; the home folder is the working folder."""
    kept = select_environment()
    os.environ.clear()
    os.environ.update(kept, HOME=folder, TMPDIR=folder)


def enter_namespaces() -> bool:
    """Move into new namespaces, if the platform allows it.

    Processes outside are invisible there and cannot be killed; when the first
    process inside ends, all others end with it. That first process is a fork,
    which returns from here; the calling process waits for it.
    """
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER | NEW_PID | NEW_NET | NEW_IPC):
        return False
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(content)
    if pid := os.fork():
        os.closerange(0, 256)
        os.waitpid(pid, 0)
        os._exit(0)
    return True


def set_limit(what: int, most: int) -> bool:
    """Set a limit, if the platform allows it; tell whether it did."""
    try:
        hard = resource.getrlimit(what)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))
    except (OSError, ValueError, TypeError):
        return False
    return True


def read_limits() -> dict[str, tuple[int, int]]:
    """Return all limits of this process."""
    names = [x for x in dir(resource) if x.startswith("RLIMIT_")]
    return {x: resource.getrlimit(getattr(resource, x)) for x in names}


def read_address_space_size() -> int:
    """Return the bytes of address space that this process already uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def separate_network() -> bool:
    """Move into a network without connections, if the platform allows it."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return not libc.unshare(NEW_NET) or not libc.unshare(NEW_USER | NEW_NET)


def disable_python_sockets() -> None:
    """Refuse connections made by Python; other code can still connect."""

    def refuse(*args, **kwargs):
        raise OSError("there is no network while notebooks are graded")

    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, refuse)
    socket.getaddrinfo = refuse
