"""Limits on a process that runs a student's code, and how it is ended.

Time, memory, the size of files and how many are open are limited by POSIX;
Linux adds namespaces without a network and without other processes, forbids
writing outside a folder and signals to other processes (Landlock), and refuses
sockets, changes of files' attributes and memory that no limit counts (seccomp).
A limit that the platform lacks is left out.
"""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import socket
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

    An answer is called on every case of its exercise. Seconds are of computing,
    or three times as many of waiting; `grace` is added before a process that
    does not stop is killed. `processes`, threads among them, are limited where
    they can be counted.
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
    """Raise an error after some seconds, and again each second after that.

    Args:
        seconds: of the clock.
        error: what is raised.
        working: seconds of computing, which end the time as well, unless 0.
    """

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


def select_environment() -> dict[str, str]:
    """Return the part of the environment that a student's code may read."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper().startswith(KEPT_VARIABLES)
    }
    # A fork does not copy the threads of OpenMP.
    return {**kept, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}


def enter_namespaces() -> int:
    """Give the processes that this one will start namespaces of their own.

    Processes outside are invisible there and cannot be killed, and there is no
    network. Returns the number of the first process inside, which does nothing
    but wait; when it ends, all others inside end with it. Returns 0 where the
    platform has no namespaces.
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
    """Be the first process of a namespace: it does nothing with its orphans."""
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
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return set()
    return {int(x) for x in found.split()}


def kill_group(pid: int) -> None:
    """Kill a process and those of its group."""
    for kill in os.killpg, os.kill:
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def end_process(pid: int, first: int, others: set[int], seconds: float = 5.0) -> int:
    """End a process and its orphans; return the signal that had ended it, or 0.

    Args:
        pid: the process.
        first: the first process of its namespace, or 0.
        others: the processes that stay.
        seconds: to look for orphans, which may start others meanwhile.
    """
    over, status = os.waitpid(pid, os.WNOHANG)
    if not over:
        kill_group(pid)
        os.waitpid(pid, 0)
    else:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        orphans = list_children(first or os.getpid()) - others - {first}
        if not orphans:
            break
        for orphan in orphans:
            kill_group(orphan)
            if not first:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, 0)
        time.sleep(0.002)
    return os.WTERMSIG(status) if over and os.WIFSIGNALED(status) else 0


# What a student's process does first.


def apply_limits(folder: str, limits: Limits, apart: bool) -> list[str]:
    """Apply every limit that this platform has; return those that it lacks.

    Args:
        folder: the only one in which files may be written.
        limits: of this process.
        apart: whether it is in namespaces of its own.
    """
    lacking = [] if apart else ["hide other processes"]
    os.chdir(folder)
    kept = select_environment()
    os.environ.clear()
    os.environ.update(kept, HOME=folder, TMPDIR=folder)
    set_limit(resource.RLIMIT_CORE, 0)
    set_limit(resource.RLIMIT_NOFILE, 256)
    set_limit(resource.RLIMIT_FSIZE, limits.file * 2**20)
    room = limits.memory * 2**20 + read_address_space_size()
    if sys.platform != "linux" or not set_limit(resource.RLIMIT_AS, room):
        lacking.append("limit memory")
    # A namespace counts only its own processes; root's are never counted.
    if apart and os.getuid():
        set_limit(resource.RLIMIT_NPROC, limits.processes)
    if not restrict_writes(folder):
        lacking.append("protect files elsewhere")
    if not (seccomp.refuse_system_calls() or apart):
        disable_python_sockets()
        lacking.append("take away the network")
    return lacking


def close_files(*but: int) -> None:
    """Close all files but some; the standard streams lead nowhere."""
    with open(os.devnull, "r+b") as nothing:
        for stream in range(3):
            os.dup2(nothing.fileno(), stream)
    last = 3
    for number in sorted(but):
        os.closerange(last, number)
        last = number + 1
    os.closerange(last, 4096)


def set_limit(what: int, most: int) -> bool:
    """Set a limit, if the platform allows it; tell whether it did."""
    try:
        hard = resource.getrlimit(what)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(what, (most, most))
    except (OSError, ValueError):
        return False
    return True


def limit_computing(seconds: float) -> None:
    """End this process when it has computed for so many more seconds.

    This also ends what never returns to Python, in a loop of C code.
    """
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(time.process_time() + seconds) + 1
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def read_address_space_size() -> int:
    """Return the bytes of address space that this process uses; 0 if unknown."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def restrict_writes(folder: str) -> bool:
    """Forbid writing outside a folder; tell whether it is forbidden now.

    /dev/null stays writable. Newer kernels also forbid truncating files
    elsewhere, using TCP, and killing other processes.
    """
    version = call_kernel("syscall", CREATE, None, 0, 1)
    if version < 1:
        return False
    writes = WRITES | (TRUNCATE if version >= TRUNCATES else 0)
    handled = struct.pack("Q", writes)
    if version >= CONNECTS:
        handled += struct.pack("Q", TCP)
    if version >= SCOPES:
        handled += struct.pack("Q", SCOPE)
    rules = call_kernel("syscall", CREATE, handled, len(handled), 0)
    file = writes & (0b10 | TRUNCATE)
    for path, rights in ((folder, writes), ("/dev/null", file)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        call_kernel("syscall", ADD, rules, 1, rule, 0)
        os.close(place)
    call_kernel("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = call_kernel("syscall", RESTRICT, rules, 0) == 0
    os.close(rules)
    return done


def disable_python_sockets() -> None:
    """Refuse connections made by Python; other code can still connect."""

    def refuse(*args, **kwargs):
        raise OSError("there is no network while notebooks are graded")

    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, refuse)
    socket.getaddrinfo = refuse


def remove_folder(folder: str) -> None:
    """Remove a folder, however deep it is and whatever its permissions are."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, folder], stderr=subprocess.DEVNULL, check=False)
