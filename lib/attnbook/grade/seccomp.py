"""System calls that a Linux process refuses itself with a seccomp filter.

It refuses what Landlock does not cover: sockets of every family, changes of a
file's times, permissions and attributes, memory that no limit counts, and access
to other processes.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import errno
import platform
import struct
import sys

SET_SECCOMP, SET_NO_NEW_PRIVILEGES, FILTER = 22, 38, 2  # for prctl
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, SECOND_ARGUMENT = 0, 4, 24  # offsets in seccomp_data
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
KIND, STREAM, PACKETS = 0xF, 1, 5  # socket types without a free address
X32 = 0x40000000  # calls of the x32 interface have this bit

# The processor's number in seccomp_data, then a system call's error and its
# numbers. An error of 0 means that the call does nothing and seems to succeed:
# copies of files, for example, set times and permissions.
PROCESSORS: dict[str, tuple[int, int, dict[int, tuple[int, ...]]]] = {
    "x86_64": (
        0xC000003E,
        53,  # socketpair
        {
            # utime, utimes, futimesat, utimensat; chmod, fchmod, fchmodat,
            # fchmodat2; chown, fchown, lchown, fchownat
            0: (132, 235, 261, 280, 90, 91, 268, 452, 92, 93, 94, 260),
            # setxattr, lsetxattr, fsetxattr, setxattrat; removexattr,
            # lremovexattr, fremovexattr, removexattrat; file_setattr
            errno.ENOTSUP: (188, 189, 190, 463, 197, 198, 199, 466, 469),
            errno.EACCES: (41,),  # socket
            # memfd_create, memfd_secret, shmget, msgget, mq_open
            # io_uring_setup, ptrace, process_vm_readv, process_vm_writev,
            # pidfd_getfd, perf_event_open, bpf, userfaultfd, add_key,
            # request_key, keyctl, unshare, setns, mount
            errno.ENOSYS: (
                *(319, 447, 29, 68, 240),
                *(425, 101, 310, 311, 438, 298, 321, 323, 248),
                *(249, 250, 272, 308, 165),
            ),
        },
    ),
    "aarch64": (
        0xC00000B7,
        199,
        {
            0: (88, 52, 53, 452, 55, 54),
            errno.ENOTSUP: (5, 6, 7, 463, 14, 15, 16, 466, 469),
            errno.EACCES: (198,),
            errno.ENOSYS: (
                *(279, 447, 194, 186, 180),
                *(425, 117, 270, 271, 438, 241, 280, 282, 217),
                *(218, 219, 97, 268, 40),
            ),
        },
    ),
}


class Program(ctypes.Structure):
    """A filter: the number of its instructions, and where they are."""

    _fields_ = (("count", ctypes.c_ushort), ("start", ctypes.c_void_p))


def refuse_system_calls() -> bool:
    """Refuse the calls above from now on; tell whether it worked."""
    if sys.platform != "linux" or platform.machine() not in PROCESSORS:
        return False
    raw = compile_filter(*PROCESSORS[platform.machine()])
    held = ctypes.create_string_buffer(raw, len(raw))
    program = Program(len(raw) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0)


def compile_filter(
    processor: int, socketpair: int, refused: dict[int, tuple[int, ...]]
) -> bytes:
    """Return the filter's instructions."""

    def write(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    made = [
        write(LOAD, ARCHITECTURE),
        write(EQUAL, processor, yes=1),
        write(RETURN, KILL),
        write(LOAD, NUMBER),
        write(AT_LEAST, X32, no=1),
        write(RETURN, FAIL | errno.ENOSYS),
    ]
    for error, numbers in refused.items():
        for number in numbers:
            made.append(write(EQUAL, number, no=1))
            made.append(write(RETURN, FAIL | error))
    # A pair without fixed ends could send to an address outside.
    made += [
        write(EQUAL, socketpair, no=5),
        write(LOAD, SECOND_ARGUMENT),
        write(AND, KIND),
        write(EQUAL, STREAM, yes=2),
        write(EQUAL, PACKETS, yes=1),
        write(RETURN, FAIL | errno.EACCES),
        write(RETURN, ALLOW),
    ]
    return b"".join(made)
