"""Messages between the grader and a student's process: JSON, never code.

A message is its length and its bytes. A request begins with a random mark; an
answer begins with the mark of its request, so that no answer can be sent in
advance. While a cell runs, each check that it calls sends a message with the
cell's mark, to which the grader replies with the inputs.
"""

import base64
import dataclasses
import json
import socket
import struct
import time

import torch
from torch import Tensor

from attnbook.exercises.outcome import Outcome

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.bool, torch.uint8, torch.int8, torch.int16),
        *(torch.int32, torch.int64, torch.complex64, torch.complex128),
    )
}
MARK = 16  # bytes of a request's mark
SECONDS = struct.Struct("!d")  # how long an attempt may take
LARGEST = 16 * 2**20  # bytes of one answer
LENGTH = struct.Struct("!I")
FIELDS = {f.name: f for f in dataclasses.fields(Outcome)}


def pack(x: Tensor) -> dict:
    """Return a tensor as JSON can hold it."""
    raw = x.detach().contiguous().reshape(-1).view(torch.uint8)
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "bytes": base64.b64encode(raw.numpy().tobytes()).decode(),
    }


def unpack(given: dict) -> Tensor:
    """Return the tensor of what `pack` returned.

    Raises:
        ValueError: if it is not a packed tensor.
    """
    try:
        dtype, shape = DTYPES[given["dtype"]], tuple(given["shape"])
        raw = bytearray(base64.b64decode(given["bytes"], validate=True))
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"a shape of {shape}")
        empty = torch.empty(0, dtype=dtype)
        x = torch.frombuffer(raw, dtype=dtype) if raw else empty
        return x.reshape(shape)
    except (KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"not a tensor: {error}") from error


def pack_outcome(outcome: Outcome) -> dict:
    """Return an outcome as JSON can hold it."""

    def plain(value):
        if isinstance(value, tuple):
            return [plain(x) for x in value]
        return pack(value) if isinstance(value, Tensor) else value

    return {name: plain(getattr(outcome, name)) for name in FIELDS}


def unpack_outcome(given: dict) -> Outcome:
    """Return the outcome of what `pack_outcome` returned.

    Raises:
        ValueError: if a part is missing or is of another kind.
    """
    if not isinstance(given, dict) or given.keys() != FIELDS.keys():
        raise ValueError("not the parts of an outcome")
    return Outcome(**{name: unpack_field(name, given[name]) for name in FIELDS})


def unpack_field(name: str, value):
    """Return one field of an outcome, checked."""
    if name in ("output", "gradients"):
        return tuple(unpack(x) for x in value)
    if name in ("floating", "changed"):
        return tuple(require_type(int, x) for x in value)
    if name in ("used", "library"):
        return tuple(require_type(str, x)[:200] for x in value)
    if name == "error" and value is None:
        return None
    return require_type(type(FIELDS[name].default) if name != "error" else str, value)


def require_type(kind: type, value):
    """Return a value if it is of this type.

    Raises:
        ValueError: if it is of another type.
    """
    if type(value) is not kind:
        raise ValueError(f"{value!r} should be of type {kind.__name__}")
    return value


def send(end: socket.socket, raw: bytes) -> None:
    """Send a message."""
    end.sendall(LENGTH.pack(len(raw)) + raw)


def receive(
    end: socket.socket, seconds: float | None = None, most: int = LARGEST
) -> bytes:
    """Return the next message, which must arrive completely in time.

    Raises:
        EOFError: if the other end disconnected.
        TimeoutError: if it did not arrive in time.
        ValueError: if it is longer than `most`.
    """
    ends = None if seconds is None else time.monotonic() + seconds
    (size,) = LENGTH.unpack(receive_exactly(end, LENGTH.size, ends))
    if size > most:
        raise ValueError(f"a message of {size} bytes, of {most} at most")
    return receive_exactly(end, size, ends)


def receive_exactly(end: socket.socket, count: int, ends: float | None) -> bytes:
    """Return exactly this many bytes."""
    found = bytearray()
    while len(found) < count:
        if ends is not None:
            end.settimeout(max(ends - time.monotonic(), 1e-3))
        more = end.recv(min(count - len(found), 2**20))
        if not more:
            raise EOFError
        found += more
    return bytes(found)


def parse_message(raw: bytes) -> dict:
    """Return a message as data.

    Raises:
        ValueError: if it is not a JSON object.
    """
    try:
        return require_type(dict, json.loads(raw))
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error
