"""Results as a table, as CSV and as JSON; the same bytes every time."""

import csv
import io
import json
from pathlib import Path

Results = dict[Path, dict]


def count_points(result: dict) -> tuple[int, int]:
    """Return the points of a notebook and the most it could have."""
    found = result["exercises"].values()
    return sum(x["points"] for x in found), sum(x["of"] for x in found)


def make_writable(text: str) -> str:
    """Return a string that UTF-8 can encode: lone surrogates are escaped."""
    return text.encode("utf8", "backslashreplace").decode("utf8")


def format_line(path: Path, result: dict) -> str:
    """Return one line on a notebook."""
    if result["error"]:
        return f"{path}: not graded, {result['error']}"
    got, most = count_points(result)
    marks = " ".join(
        f"{name.removeprefix('check_')} {x['verdict'][:1]}"
        for name, x in result["exercises"].items()
    )
    return f"{path}: {got} of {most} ({marks})"


def list_results(results: Results) -> list[dict]:
    """Return all results, notebooks in the order of their names."""
    return [
        {
            "notebook": str(path),
            "points": count_points(results[path])[0],
            "of": count_points(results[path])[1],
            **results[path],
        }
        for path in sorted(results)
    ]


def format_json(results: Results) -> str:
    """Return all results as JSON, notebooks in the order of their names."""
    return json.dumps(list_results(results), indent=1, ensure_ascii=False) + "\n"


def format_csv(results: Results) -> str:
    """Return one row per notebook: points and mistakes of each exercise."""
    names = list(
        dict.fromkeys(
            name
            for path in sorted(results)
            for name in find_exercise_results(results, path)
        )
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    slugs = [f"{name} mistake" for name in names]
    table.writerow(["notebook", "points", "of", "error", *names, *slugs])
    for path in sorted(results):
        found = find_exercise_results(results, path)
        table.writerow(
            [
                *(escape_formula(str(path)), *count_points(results[path])),
                escape_formula(results[path]["error"] or ""),
                *(found.get(name, {}).get("points", "") for name in names),
                *(found.get(name, {}).get("mistake") or "" for name in names),
            ]
        )
    return text.getvalue()


def find_exercise_results(results: Results, path: Path) -> dict:
    """Return a notebook's exercises."""
    return results[path]["exercises"]


def escape_formula(text: str) -> str:
    """Return a string that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r")) else text
