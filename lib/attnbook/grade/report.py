"""Results as a table, as CSV and as JSON; the same bytes every time.

Chapter: all of them
Source: none
Axes: none
"""

import csv
import io
import json
from pathlib import Path

Results = dict[Path, dict]


def points(result: dict) -> tuple[int, int]:
    """Return the points of a notebook, and how many there were to get."""
    found = result["exercises"].values()
    return sum(x["points"] for x in found), sum(x["of"] for x in found)


def readable(text: str) -> str:
    """Return a text that can be written: halves of characters are spelt out."""
    return text.encode("utf8", "backslashreplace").decode("utf8")


def line(path: Path, result: dict) -> str:
    """Return one line on a notebook."""
    if result["error"]:
        return f"{path}: not graded, {result['error']}"
    got, most = points(result)
    marks = " ".join(
        f"{name.removeprefix('check_')} {x['verdict'][:1]}"
        for name, x in result["exercises"].items()
    )
    return f"{path}: {got} of {most} ({marks})"


def as_json(results: Results) -> str:
    """Return all results as JSON, notebooks in the order of their names."""
    found = [
        {
            "notebook": str(path),
            "points": points(results[path])[0],
            "of": points(results[path])[1],
            **results[path],
        }
        for path in sorted(results)
    ]
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def as_csv(results: Results) -> str:
    """Return a row a notebook: points, and each exercise's with its slug."""
    names = list(
        dict.fromkeys(
            name
            for path in sorted(results)
            for name in exercises(results, path)
        )
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    slugs = [f"{name} mistake" for name in names]
    table.writerow(["notebook", "points", "of", "error", *names, *slugs])
    for path in sorted(results):
        found = exercises(results, path)
        table.writerow(
            [
                *(safe(str(path)), *points(results[path])),
                safe(results[path]["error"] or ""),
                *(found.get(name, {}).get("points", "") for name in names),
                *(found.get(name, {}).get("mistake") or "" for name in names),
            ]
        )
    return text.getvalue()


def exercises(results: Results, path: Path) -> dict:
    """Return a notebook's exercises."""
    return results[path]["exercises"]


def safe(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r")) else text
