"""Limits on a process that runs a student's code, and how it is ended.

POSIX limits time, memory and files. Linux adds namespaces without a network and
without other processes, forbids writing outside a folder (Landlock), and refuses
sockets, changes of files' attributes and memory that no limit counts (seccomp).
"""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnbook.grade import seccomp

# Of the environment, only what Python, its libraries and locale need.
KEPT_VARIABLES = (
    *("PATH", "LANG", "LC_", "TZ", "PYTHON", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("DYLD_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_"),
    *("ATEN_", "DNNL_", "ONEDNN_", "GLIBC_TUNABLES", "MPL", "COVERAGE"),
)
NEW_USER, NEW_PID, NEW_NET, NEW_IPC = 1 << 28, 1 << 29, 1 << 30, 1 << 27
DIE_WITH_PARENT, NO_NEW_PRIVILEGES, ADOPT = 1, 38, 36  # for prctl
LONGEST = 10**6  # seconds of computing of one process

# Landlock's system calls and rights, as in the kernel's linux/landlock.h.
# Source: https://docs.kernel.org/userspace-api/landlock.html
CREATE, ADD, RESTRICT = 444, 445, 446
WRITES = 0b1_1111_1111_0010  # write, remove, make: rights of version 1
TRUNCATE, TRUNCATES = 1 << 14, 3  # a right, and the version that brought it
TCP, CONNECTS = 0b11, 4  # bind and connect
SCOPE, SCOPES = 0b11, 6  # abstract sockets of others, signals to others


@dataclass(frozen=True)
class Limits:
    """Seconds of a cell, notebook and answer; megabytes of memory and a file.

    Seconds are of computing, or three times as many of waiting, and `grace` before
    a process is killed. `processes` include threads; root's are not counted.
    """

    cell: float = 60.0
    whole: float = 300.0
    answer: float = 45.0
    grace: float = 10.0
    memory: int = 4096
    file: int = 64
    processes: int = 128


def call_kernel(name: str, *arguments) -> int:
    """Return what a function of the C library returns; -1 where there is none."""
    if sys.platform != "linux":
        return -1
    return getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)


def measure_load() -> float:
    """Return the number of runnable processes per core, from 1 to 10."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 10.0)


@contextlib.contextmanager
def limit_time(
    seconds: float, error: type[BaseException], working: float = 0.0
) -> Iterator[None]:
    """Raise an error after seconds of the clock or of working, and then each second."""

    def ring(number, frame):
        raise error

    for number in signal.SIGALRM, signal.SIGPROF:
        signal.signal(number, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 1.0)
        signal.setitimer(signal.ITIMER_PROF, working, 1.0)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextlib.contextmanager
def stop_clock() -> Iterator[None]:
    """Let no time of the clock pass for `limit_time`."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, 1.0)


# What the judge's process does before a student's processes start.


def clear_environment(**more: str) -> None:
    """Remove what a student's code need not read from the environment."""
    for name in [x for x in os.environ if not x.upper().startswith(KEPT_VARIABLES)]:
        del os.environ[name]
    # A fork does not copy the threads of OpenMP.
    os.environ.update({"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", **more})


def enter_namespaces() -> int:
    """Give the processes that this one will start namespaces of their own.

    Inside, there are no other processes and no network. Returns the number of the
    first process, with which all others end; 0 where there are no namespaces.
    """
    user, group = os.getuid(), os.getgid()
    # Orphans become children of this process, or of the first one inside.
    call_kernel("prctl", ADOPT, 1, 0, 0, 0)
    if call_kernel("unshare", NEW_USER | NEW_PID | NEW_NET | NEW_IPC):
        return 0
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(content)
    return start_process(wait_for_ever)


def wait_for_ever() -> None:
    """Be the first process of a namespace."""
    close_files()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


def start_process(work: Callable[[], object]) -> int:
    """Run work in a forked process, which ends with this one; return its number."""
    if pid := os.fork():
        return pid
    try:
        call_kernel("prctl", DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        work()
    finally:
        os._exit(0)


def list_children(pid: int) -> set[int]:
    """Return the numbers of a process's children, where they are listed."""
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return {int(x) for x in found.split()}
    return set()


def kill_group(pid: int) -> None:
    """Kill a process and those of its group."""
    for kill in os.killpg, os.kill:
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def end_process(pid: int, first: int = 0, other: int = 0, seconds: float = 5.0) -> int:
    """End a process and its orphans; return the signal that had ended it, or 0."""
    over, status = os.waitpid(pid, os.WNOHANG)
    kill_group(pid)
    if not over:
        os.waitpid(pid, 0)
    ends = time.monotonic() + seconds
    while orphans := list_children(first or os.getpid()) - {first, other}:
        for orphan in orphans:
            kill_group(orphan)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, 0)
        if time.monotonic() > ends:
            break
    return os.WTERMSIG(status) if over and os.WIFSIGNALED(status) else 0


@dataclass(frozen=True)
class Place:
    """A folder to write in, limits, and whether there are namespaces."""

    folder: str
    limits: Limits
    apart: bool


def apply_limits(place: Place) -> bool:
    """Apply every limit that this platform has; tell whether none is missing."""
    folder, limits = place.folder, place.limits
    os.chdir(folder)
    clear_environment(HOME=folder, TMPDIR=folder)
    set_limit(resource.RLIMIT_NOFILE, 256)
    set_limit(resource.RLIMIT_FSIZE, limits.file * 2**20)
    limit_memory(limits.memory)
    # A namespace counts only its own processes; root's are never counted.
    if place.apart and os.getuid():
        set_limit(resource.RLIMIT_NPROC, limits.processes)
    return all((restrict_writes(folder), seccomp.refuse_system_calls(), place.apart))


def is_complete() -> bool:
    """Tell whether this platform has every limit, by trying them."""
    if not (pid := os.fork()):
        if first := enter_namespaces():
            kill_group(first)
        os._exit(not apply_limits(Place("/", Limits(), bool(first))))
    return os.waitpid(pid, 0)[1] == 0


def close_files(but: int = 3) -> None:
    """Close all files but one; the standard streams lead nowhere."""
    with open(os.devnull, "r+b") as nothing:
        for stream in range(3):
            os.dup2(nothing.fileno(), stream)
    os.closerange(3, but)
    os.closerange(but + 1, 4096)


def set_limit(what: int, most: int, last: int | None = None) -> None:
    """Set a limit, which may be raised up to the last one, if the platform does."""
    last = most if last is None else last
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (most, last))


def limit_memory(megabytes: int) -> None:
    """Limit the address space, beside what this process uses already, on Linux."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        used = pages * resource.getpagesize()
        set_limit(resource.RLIMIT_AS, megabytes * 2**20 + used)


def limit_computing(seconds: float) -> None:
    """End this process after computing for so long, even in a loop of C code."""
    set_limit(resource.RLIMIT_CPU, int(time.process_time() + seconds) + 1, LONGEST)


def restrict_writes(folder: str) -> bool:
    """Forbid writing outside a folder, TCP and killing others, if possible."""
    version = call_kernel("syscall", CREATE, None, 0, 1)
    if version < 1:
        return False
    writes = WRITES | (TRUNCATE if version >= TRUNCATES else 0)
    rights = [writes, *[TCP] * (version >= CONNECTS), *[SCOPE] * (version >= SCOPES)]
    handled = struct.pack(f"{len(rights)}Q", *rights)
    rules = call_kernel("syscall", CREATE, handled, len(handled), 0)
    file = writes & (0b10 | TRUNCATE)
    for path, allowed in ((folder, writes), ("/dev/null", file)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place))
        call_kernel("syscall", ADD, rules, 1, rule, 0)
        os.close(place)
    call_kernel("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = call_kernel("syscall", RESTRICT, rules, 0) == 0
    os.close(rules)
    return done


def remove_folder(folder: str) -> None:
    """Remove a folder, however deep it is and whatever its permissions are."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, folder], stderr=subprocess.DEVNULL, check=False)
