"""Say how far a long command is: on a terminal, and never in a log.

`python -m workshop.progress mypy -- python -m mypy` runs a command under a line
that counts its seconds, and then prints what the command printed.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from tempfile import TemporaryFile
from typing import Any, TextIO

PAUSE = 0.5  # seconds between two looks at what runs


class Progress:
    """Say how far a run is: over and over on a terminal, once in a log."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stdout

    def overwrite_line(self, message: str) -> None:
        """Show a line that the next one overwrites; nothing in a log."""
        if self.stream.isatty():
            print(f"\r\033[K{message}", end="", file=self.stream, flush=True)

    def clear_line(self) -> None:
        """Remove a line that was to be overwritten."""
        self.overwrite_line("")

    def write_line(self, message: str) -> None:
        """Show a line that stays."""
        clear = "\r\033[K" if self.stream.isatty() else ""
        print(f"{clear}{message}", file=self.stream, flush=True)


def wait_for(
    processes: Sequence[subprocess.Popen],
    show: Callable[[float], None],
    seconds: float = float("inf"),
) -> list[int]:
    """Wait until all processes have ended; return their exit codes.

    Args:
        processes: what runs.
        show: is called every half second with the seconds that have passed.
        seconds: how long to wait at most.

    Raises:
        subprocess.TimeoutExpired: if something still runs then.
    """
    began = time.monotonic()
    for process in processes:
        while process.poll() is None:
            passed = time.monotonic() - began
            if passed >= seconds:
                raise subprocess.TimeoutExpired(process.args, seconds)
            show(passed)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, min(PAUSE, seconds - passed)))
    return [process.wait() for process in processes]


def run_with_progress(
    name: str,
    command: Sequence[str],
    progress: Progress | None = None,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command under a line with its seconds; return what it printed.

    Args:
        name: what the line calls the command.
        command: the command and its arguments.
        progress: where the line is shown; standard error unless given.
        more: for `subprocess.Popen`, as `env`.
    """
    shown = progress or Progress(sys.stderr)
    with TemporaryFile("w+", encoding="utf8") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, **more
        )
        try:
            (code,) = wait_for(
                [process], lambda t: shown.overwrite_line(f"{name}: {t:.0f} s")
            )
        finally:
            process.kill()
            shown.clear_line()
        out.seek(0)
        return subprocess.CompletedProcess(command, code, out.read())


def main(words: Sequence[str] | None = None) -> int:
    """Run a command with its progress, and print what it printed."""
    name, *command = sys.argv[1:] if words is None else words
    if command[:1] != ["--"]:
        print("usage: python -m workshop.progress NAME -- COMMAND ...")
        return 2
    command = command[1:]
    done = run_with_progress(name, command)
    print(done.stdout, end="", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
