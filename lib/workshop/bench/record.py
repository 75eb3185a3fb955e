"""The record of a benchmark: a JSON that a later run goes on with."""

import json
from pathlib import Path

from workshop.bench.machine import (
    MEASURED,
    detect_flash_backend,
    hash_code,
    identify,
    list_files,
)


def open_record(device: str, out: Path) -> dict:
    """Return the record that is there, if of the same setting, or a new one.

    The setting is the device, versions, driver, clock limits and the hash of
    our code. A record of another setting is kept beside the new one.

    Raises:
        ValueError: if the file is no record of this benchmark.
    """
    setting = identify(device, hash_code(list_files(MEASURED)))
    if out.exists():
        found = read_record(out)
        changed = [k for k, v in setting.items() if found.get(k) != v]
        if not changed:
            return found
        aside = out.with_suffix(".previous.json")
        out.replace(aside)
        reason = ", ".join(
            f"{k} was {found.get(k)!r} and is {setting[k]!r}" for k in changed
        )
        print(f"begun anew, because {reason}; the old record is {aside}")
    return setting | {
        "sdpa_flash": detect_flash_backend(),
        "ceilings": {},
        "correct": {},
        "wrong": {},
        "faults": {},
        "rows": [],
    }


def read_record(out: Path) -> dict:
    """Return a record.

    Raises:
        ValueError: if the file is none.
    """
    try:
        found = json.loads(out.read_text("utf8"))
    except ValueError as error:
        raise ValueError(f"{out} is not JSON ({error}); name another") from None
    if not isinstance(found, dict) or "rows" not in found:
        raise ValueError(f"{out} is no record of this benchmark: name another")
    return found


def write_record(record: dict, out: Path) -> None:
    """Write the record, first to another file: a run may be stopped."""
    beside = out.with_suffix(".part")
    beside.write_text(json.dumps(record, indent=1) + "\n", "utf8")
    beside.replace(out)
