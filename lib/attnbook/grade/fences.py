"""What a process with a student's code in it may not do.

Time, memory, the size of files and their number are limited by POSIX; a
network of its own, with nobody in it, and a ban on writing outside its folder
(Landlock) are Linux's. Where the platform lacks a fence it is left out;
`fence` returns those that stand.

Chapter: all of them
Source: none
Axes: none
"""

import ctypes
import os
import socket
import struct
import sys
from dataclasses import dataclass

try:
    import resource
except ImportError:  # Windows
    resource = None

NEW_USER, NEW_NET = 0x10000000, 0x40000000
CREATE, ADD, RESTRICT = 444, 445, 446  # Landlock's system calls
WRITES = 0b1_1111_1111_0010  # write, remove, make: rights of its first version


@dataclass(frozen=True)
class Limits:
    """Seconds per cell, answer and notebook; megabytes of memory and file.

    `grace` is what the grader waits beyond three times a cell's seconds.
    """

    cell: float = 60.0
    whole: float = 300.0
    answer: float = 45.0
    grace: float = 10.0
    memory: int = 4096
    file: int = 64


def fence(folder: str, limits: Limits) -> list[str]:
    """Put up every fence that this platform has; return their names."""
    up = ["time"]
    os.chdir(folder)
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
    up.append("network" if offline() else "network (Python's only)")
    if landlock(folder):
        up.append("writing elsewhere")
    return up


def lower(what: int, most: int) -> bool:
    """Set a limit, if the platform lets us."""
    try:
        hard = resource.getrlimit(what)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))
    except (OSError, ValueError):
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


def landlock(folder: str) -> bool:
    """Forbid writing outside a folder; /dev/null stays."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.create_string_buffer(struct.pack("Q", WRITES), 8)
    rules = libc.syscall(CREATE, handled, 8, 0)
    if rules < 0:
        return False
    for path, rights in ((folder, WRITES), ("/dev/null", 0b10)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        libc.syscall(ADD, rules, 1, rule, 0)
        os.close(place)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, which the next call asks
    done = libc.syscall(RESTRICT, rules, 0) == 0
    os.close(rules)
    return done
