"""Landlock, with which a Linux process restricts its own rights.

Numbers and layouts are those of the kernel's `include/uapi/linux/landlock.h`.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import struct
import sys

CREATE, ADD, RESTRICT = 444, 445, 446  # its system calls
WRITES = 0b1_1111_1111_0010  # write, remove, make: rights of version 1
TRUNCATE, TRUNCATES = 1 << 14, 3  # a right, and the version that brought it
TCP, CONNECTS = 0b11, 4  # bind and connect
SCOPE, SCOPES = 0b11, 6  # abstract sockets of others, signals to others


def restrict_writes(folder: str) -> list[str]:
    """Forbid writing outside a folder; return what is forbidden now.

    /dev/null stays writable. Newer kernels also forbid truncating files
    elsewhere, using TCP, and killing other processes.
    """
    if sys.platform != "linux":
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE, None, 0, 1)
    if version < 1:
        return []
    writes = WRITES | (TRUNCATE if version >= TRUNCATES else 0)
    handled = struct.pack("Q", writes)
    if version >= CONNECTS:
        handled += struct.pack("Q", TCP)
    if version >= SCOPES:
        handled += struct.pack("Q", SCOPE)
    rules = libc.syscall(CREATE, handled, len(handled), 0)
    file = writes & (0b10 | TRUNCATE)
    for path, rights in ((folder, writes), ("/dev/null", file)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        libc.syscall(ADD, rules, 1, rule, 0)
        os.close(place)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, which the next call requires
    done = libc.syscall(RESTRICT, rules, 0) == 0
    os.close(rules)
    return ["writing elsewhere"] if done else []
