"""Grading in parts: which submissions belong to a shard, and merging shards.

Every job of an array gets the same list of submissions and grades the shard
that its number selects. The file that it writes names all submissions, so that
merging can name those that no job has graded.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnbook.grade.report import Results, list_results

PARTS = ("error", "notes", "exercises")


@dataclass(frozen=True)
class Shard:
    """One of several parts of a class.

    Attributes:
        number: which part it is, from 1.
        count: how many parts there are.
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def select(self, paths: Iterable[Path]) -> list[Path]:
        """Return this part of the submissions, which are sorted by name.

        The order in which they are given does not matter.
        """
        return sorted(set(paths))[self.number - 1 :: self.count]


def parse_shard(text: str) -> Shard:
    """Return the shard that `K/N` means.

    Raises:
        ValueError: if K and N are not whole numbers with 1 ≤ K ≤ N.
    """
    number, _, count = text.partition("/")
    try:
        shard = Shard(int(number), int(count))
    except ValueError:
        raise ValueError(
            f"K/N needs two whole numbers, and {text!r} has K = {number!r} "
            f"and N = {count!r}"
        ) from None
    if not 1 <= shard.number <= shard.count:
        raise ValueError(
            f"K must be one of the numbers from 1 to N, and {text!r} has "
            f"K = {shard.number} and N = {shard.count}"
        )
    return shard


def format_shard(
    results: Results, shard: Shard, paths: Iterable[Path], settings: dict
) -> str:
    """Return a shard's results as JSON, with what merging needs to know.

    Args:
        results: of this shard.
        shard: which part of the submissions it is.
        paths: all submissions.
        settings: what the verdicts depend on, beside the notebooks.
    """
    content = {
        "shard": str(shard),
        "settings": settings,
        "notebooks": [str(path) for path in sorted(set(paths))],
        "results": list_results(results),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_file(path: Path) -> dict:
    """Return what a file of results holds; a whole class is one shard.

    Raises:
        ValueError: if it is no file of results.
    """
    try:
        content = json.loads(path.read_bytes())
        if isinstance(content, list):
            names = [given["notebook"] for given in content]
            content = {"notebooks": names, "results": content}
        return {
            "shard": content.get("shard"),
            "settings": content.get("settings"),
            "notebooks": {str(name) for name in content["notebooks"]},
            "results": [
                (
                    Path(given["notebook"]),
                    {part: given[part] for part in PARTS},
                )
                for given in content["results"]
            ],
        }
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise ValueError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file that --json has written") from error


def merge(paths: Sequence[Path]) -> Results:
    """Return the results of all files.

    Raises:
        ValueError: if a submission is missing or in two files, or if the files
            do not belong together.
    """
    parts = {path: read_file(path) for path in paths}
    require_same_class(parts)
    found: dict[Path, tuple[Path, dict]] = {}
    doubled: list[str] = []
    for path in paths:
        for notebook, result in parts[path]["results"]:
            if notebook in found:
                first = found[notebook][0]
                doubled.append(f"{notebook} (in {first} and in {path})")
            found[notebook] = path, result
    if doubled:
        raise ValueError(f"graded more than once: {', '.join(doubled)}")
    names = set().union(*(part["notebooks"] for part in parts.values()))
    if missing := sorted(names - set(map(str, found))):
        have = ", ".join(part["shard"] or "none" for part in parts.values())
        raise ValueError(
            f"not graded by any of these shards ({have}): {', '.join(missing)}"
        )
    return {notebook: result for notebook, (_, result) in found.items()}


def require_same_class(parts: dict[Path, dict]) -> None:
    """Refuse shards of different classes or of different settings.

    Raises:
        ValueError: if there are such.
    """
    shards = [path for path in parts if parts[path]["shard"]]
    for path in shards[1:]:
        first = shards[0]
        if parts[path]["settings"] != parts[first]["settings"]:
            raise ValueError(
                f"{first} was graded with {parts[first]['settings']} and "
                f"{path} with {parts[path]['settings']}"
            )
        if other := parts[path]["notebooks"] ^ parts[first]["notebooks"]:
            raise ValueError(
                f"{first} and {path} are shards of different lists of "
                f"submissions: only one of them lists {min(other)}"
            )
