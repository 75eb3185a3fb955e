"""What a process with a student's code in it may not do.

Time, memory, the size of files and how many are open are limited by POSIX;
namespaces with nobody else in them (no network, no process to be ended but its
own) and a ban on writing and signals to elsewhere (`landlock`) are Linux's.
Where the platform lacks a fence it is left out; `fence` returns those that
stand.

Chapter: all of them
Source: none
Axes: none
"""

import contextlib
import ctypes
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from attnbook.exercises.limits import SECONDS
from attnbook.grade import landlock

try:
    import resource
except ImportError:  # Windows
    resource = None

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


def fence(folder: str, limits: Limits) -> list[str]:
    """Put up every fence that this platform has; return their names.

    Where there are namespaces, the process that returns is a new one.
    """
    up = ["time"]
    os.chdir(folder)
    root = hasattr(os, "getuid") and os.getuid() == 0
    if apart := separated():
        up.append("signals to others")
    if hasattr(os, "setsid"):
        os.setsid()
    if resource:
        seconds = int(limits.whole) + 1
        lower(resource.RLIMIT_CPU, seconds)
        lower(resource.RLIMIT_CORE, 0)
        lower(resource.RLIMIT_NOFILE, 256)
        if lower(resource.RLIMIT_FSIZE, limits.file * 2**20):
            up.append("size of files")
        room = limits.memory * 2**20 + taken()
        if sys.platform == "linux" and lower(resource.RLIMIT_AS, room):
            up.append("memory")
        # In a namespace, nobody else's processes are counted; root's never.
        if apart and not root and lower(NPROC, limits.processes):
            up.append("number of processes")
    up.append("network" if apart or offline() else "network (Python's only)")
    return up + landlock.locked(folder)


def separated() -> bool:
    """Move into namespaces of one's own, if the platform lets us.

    There, no other process can be named, so that none can be ended; when the
    first one in it ends, all others do. That first one is a fork, which returns
    from here; the process that asked waits for it.
    """
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_USER | NEW_PID | NEW_NET | NEW_IPC):
        return False
    for name, said in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(said)
    if pid := os.fork():
        os.closerange(0, 256)
        os.waitpid(pid, 0)
        os._exit(0)
    return True


def lower(what: int, most: int) -> bool:
    """Set a limit, if the platform lets us."""
    try:
        hard = resource.getrlimit(what)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))
    except (OSError, ValueError, TypeError):
        return False
    return True


def taken() -> int:
    """Return the bytes of address space that this process has already."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def offline() -> bool:
    """Leave the network: for one without anybody, or else in Python only."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if not libc.unshare(NEW_NET) or not libc.unshare(NEW_USER | NEW_NET):
            return True

    def refuse(*args, **kwargs):
        raise OSError("no network when notebooks are graded")

    socket.socket.connect = socket.socket.connect_ex = refuse
    socket.getaddrinfo = refuse
    return False
