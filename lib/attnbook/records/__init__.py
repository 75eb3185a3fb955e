"""Results of recorded runs, and the one module that reads them.

`load_record(name)` reads a run's file and prints where it comes from. From a
clone of the repository, `python -m workshop.experiments NAME` repeats the run.
"""

import json
from difflib import get_close_matches
from pathlib import Path

RECORDS = Path(__file__).with_name("json")
WEIGHTS = Path(__file__).with_name("weights")
REQUIRED_FIELDS = (
    *("name", "command", "seeds", "device", "versions", "date"),
    *("wall_s", "cpu_s", "results"),
)


def list_records(start: str = "") -> list[str]:
    """Return the names of the recorded runs that begin with `start`."""
    return sorted(p.stem for p in RECORDS.glob(f"{start}*.json"))


def suggest_names(word: str, known: list[str]) -> str:
    """Return the end of a sentence about an unknown run: the names near it."""
    near = get_close_matches(word, known, n=5, cutoff=0.0)
    return f"the nearest are {', '.join(near)}"


def read_record(name: str, folder: Path = RECORDS) -> dict:
    """Return a recorded run as its file has it.

    Raises:
        ValueError: if there is no such run, or its file is broken.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.json"))
        raise ValueError(f"no run is named {name!r}; {suggest_names(name, known)}")
    try:
        record = json.loads(path.read_text("utf8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path.name} is broken at line {error.lineno}, column "
            f"{error.colno}: {error.msg}; repeat the run or download "
            "the file again"
        ) from error
    kind = type(record).__name__
    missing = [k for k in REQUIRED_FIELDS if kind == "dict" and k not in record]
    if kind != "dict" or missing:
        what = f"lacks {missing}" if missing else f"holds a {kind}, not a run"
        raise ValueError(f"{path.name} {what}; repeat the run")
    if record["name"] != name:
        raise ValueError(f"{path.name} holds the run {record['name']!r}, not {name!r}")
    return record


def load_record(name: str, say: bool = True) -> dict:
    """Return a recorded run, and print where it comes from.

    Raises:
        ValueError: if there is no such run, or its file is broken.
    """
    record = read_record(name)
    if say:
        print(describe_provenance(record))
    return record


def describe_provenance(record: dict) -> str:
    """Return one line: how a record was made, where, when, in what time."""
    epochs = f", {record['epochs']} epochs" if "epochs" in record else ""
    return (
        f"{record['name']}: `{record['command']}`, {record['date'][:10]}, "
        f"{record['device']}{epochs}, {record['cpu_s'] / 60:.1f} CPU minutes"
    )
