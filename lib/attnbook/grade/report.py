"""Results as lines, CSV, JSON and a page on a class; the same bytes every time."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from statistics import mean, median
from string import Template

Results = dict[Path, dict]
MOST_MISTAKES = 30  # rows of the table of mistakes
# What a teacher should look at: a reason, and what tells it in a note or in the
# message of a verdict. The first reason that fits is given.
SIGNS = {
    "stopped by a limit": (
        *("was stopped after", "was not run: the time", "MemoryError"),
        *("File too large", "Too many open files", "Resource temporarily"),
    ),
    "refused by the sandbox": (
        *("PermissionError", "Operation not permitted", "Permission denied"),
        *("Network is unreachable", "Connection refused"),
    ),
    "ended its process early": ("ended its own process",),
    "not graded": ("cannot be copied to a process",),
    "sent malformed messages": ("grader's socket", "form that the grader expects"),
    "a check was called too often": ("is called more than",),
    "not executed": ("is not executed while grading",),
}
SLUGS = {
    "too-long": "stopped by a limit",
    "too-much": "stopped by a limit",
    "never-ran": "stopped by a limit",
    "tampered": "sent malformed messages",
}
PAGE = Path(__file__).with_suffix(".html")


def write_results(
    results: Results,
    csv: Path | str | None = None,
    json: Path | str | None = None,
    html: Path | str | None = None,
) -> None:
    """Print a line for each notebook, and write the files that are named."""
    for path in sorted(results):
        print(make_writable(format_line(path, results[path])))
    for file, make in ((csv, format_csv), (json, format_json), (html, format_html)):
        if file:
            Path(file).write_text(make_writable(make(results)), "utf8")


def count_points(result: dict) -> tuple[int, int]:
    """Return the points of a notebook and the most it could have."""
    found = result["exercises"].values()
    return sum(x["points"] or 0 for x in found), sum(x["of"] for x in found)


def make_writable(text: str) -> str:
    """Return a string that UTF-8 can encode: lone surrogates are escaped."""
    return text.encode("utf8", "backslashreplace").decode("utf8")


def format_line(path: Path, result: dict) -> str:
    """Return one line on a notebook."""
    if result["error"]:
        return f"{path}: not graded, {result['error']}"
    marks = [f"{shorten(k)} {x['verdict'][:1]}" for k, x in result["exercises"].items()]
    return f"{path}: {write_total(result)} ({' '.join(marks)})"


def shorten(name: str) -> str:
    """Return the name of a check as columns show it."""
    return name.removeprefix("check_")


def write_total(result: dict) -> str:
    """Return a notebook's points in words."""
    return "not graded" if result["error"] else "{} of {}".format(*count_points(result))


def format_json(results: Results) -> str:
    """Return all results as JSON, notebooks in the order of their names."""
    found = []
    for path, result in sorted(results.items()):
        points, most = count_points(result)
        found.append({"notebook": str(path), "points": points, "of": most, **result})
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def format_csv(results: Results) -> str:
    """Return one row per notebook: points and mistakes of each exercise."""
    names = list_exercises(results)
    slugs = (f"{name} mistake" for name in names)
    rows = [["notebook", "points", "of", "error", *names, *slugs]]
    for path, result in sorted(results.items()):
        found = [result["exercises"].get(name, {}) for name in names]
        row = [escape_formula(str(path)), *count_points(result)]
        row += [escape_formula(result["error"] or "")]
        row += [x.get("points", "") for x in found]
        rows.append(row + [x.get("mistake") or "" for x in found])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def list_exercises(results: Results) -> list[str]:
    """Return the exercises of all notebooks."""
    found = (name for path in sorted(results) for name in results[path]["exercises"])
    return list(dict.fromkeys(found))


def escape_formula(text: str) -> str:
    """Return a string that no spreadsheet interprets as a formula."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r")) else text


# The page.


def find_reasons(result: dict) -> list[tuple[str, str]]:
    """Return why a person should look at a submission, each with details."""
    found = [("not graded", result["error"])] if result["error"] else []
    for name, given in result["exercises"].items():
        verdict, slug = given["verdict"], given["mistake"]
        if verdict.startswith("… not graded"):
            reason = "not graded"
        else:
            reason = find_sign(verdict) if slug == "error" else SLUGS.get(slug, "")
        found.append((reason, f"{shorten(name)}: {verdict}"))
    found += [(find_sign(note), note) for note in result["notes"]]
    return [(reason, detail) for reason, detail in found if reason]


def find_sign(text: str) -> str:
    """Return the reason that a text is a sign of, or nothing."""
    found = (r for r, signs in SIGNS.items() if any(sign in text for sign in signs))
    return next(found, "")


def make_row(head: object, *cells) -> str:
    """Return a table's row: what students wrote is text, whatever it is."""
    row = f'<th scope="row">{escape(str(head))}</th>'
    for cell in cells:
        usual = cell, "text" if isinstance(cell, str) else "number"
        text, kind = cell if isinstance(cell, tuple) else usual
        row += f'<td class="{kind}">{escape(str(text))}</td>'
    return f"<tr>{row}</tr>\n"


def make_table(title: str, heads: Iterable[str], rows: list[str]) -> str:
    """Return a table that scrolls in its own box."""
    columns = "".join(f'<th scope="col">{escape(x)}</th>' for x in heads)
    table = f"<thead><tr>{columns}</tr></thead>\n<tbody>{''.join(rows)}</tbody>"
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
    return f"{box}<table>{table}</table></div>" if rows else "<p>None.</p>"


def format_html(results: Results) -> str:
    """Return the report on a class as a page, which needs no other file."""
    results = {path: results[path] for path in sorted(results)}
    return Template(PAGE.read_text("utf8")).substitute(
        summary=write_summary(results),
        attention=write_attention(results),
        mistakes=write_mistakes(results),
        exercises=write_exercises(results),
        points=write_points(results),
        submissions=write_submissions(results),
    )


def write_attention(results: Results) -> str:
    """Return the submissions that a person should look at."""
    found = ((path, x) for path in results for x in find_reasons(results[path]))
    rows = [make_row(path, *reason) for path, reason in found]
    return make_table("Attention", ("submission", "reason", "details"), rows)


def write_summary(results: Results) -> str:
    """Return how many submissions there are, and their points."""
    graded = [count_points(x) for x in results.values() if not x["error"]]
    left = len(results) - len(graded)
    text = f"{len(results)} submissions, {left} of them not graded."
    if graded:
        got, most = zip(*graded, strict=True)
        text += f" Points of those that were graded: {mean(got):.1f} on average, "
        text += f"{median(got):g} in the median, {min(got)} to {max(got)}, "
        text += f"of {max(most)} at most."
    return text


def write_mistakes(results: Results) -> str:
    """Return the most frequent mistakes by name."""
    where: dict[str, list[tuple[Path, str]]] = {}
    for path, result in results.items():
        for name, given in result["exercises"].items():
            if slug := given["mistake"]:
                where.setdefault(slug, []).append((path, shorten(name)))
    counts = {slug: len({path for path, _ in x}) for slug, x in where.items()}
    rows = []
    for slug in sorted(where, key=lambda slug: (-counts[slug], slug)):
        often = Counter(name for _, name in where[slug]).most_common()
        names = ", ".join(f"{name} {n}" for name, n in often)
        rows.append(make_row(slug, counts[slug], names))
    heads = "mistake", "submissions", "exercises"
    return make_table("Mistakes", heads, rows[:MOST_MISTAKES])


def write_exercises(results: Results) -> str:
    """Return how the class did in each exercise."""
    rows = []
    for name in list_exercises(results):
        every = [x["exercises"].get(name) for x in results.values()]
        found = [x for x in every if x]
        marks = Counter(x["verdict"][:1] for x in found)
        points = f"{mean(x['points'] or 0 for x in found):.2f} of {found[0]['of']}"
        counts = (marks[mark] for mark in "✓✗…")
        rows.append(make_row(shorten(name), *counts, (points, "number")))
    heads = "exercise", "right", "wrong", "not attempted", "mean points"
    return make_table("Exercises", heads, rows)


def write_points(results: Results) -> str:
    """Return the points of every submission in every exercise."""
    names, rows = list_exercises(results), []
    kinds = {"✓": "right", "✗": "wrong", "…": "soft", "": ""}
    for path, result in results.items():
        cells = []
        for name in names:
            given = result["exercises"].get(name, {"verdict": "", "points": ""})
            mark = given["verdict"][:1]
            points = "" if given["points"] is None else given["points"]
            cells.append((f"{mark} {points}", kinds[mark]))
        rows.append(make_row(path, (write_total(result), "number"), *cells))
    heads = "submission", "points", *(shorten(x) for x in names)
    return make_table("Points", heads, rows)


def write_submissions(results: Results) -> str:
    """Return the verdicts and notes of every submission, folded."""
    parts = []
    for path, result in results.items():
        said = [result["error"]] if result["error"] else []
        for name, given in result["exercises"].items():
            said.append(f"{shorten(name)}: {given['verdict']}")
        items = "".join(f"<li>{escape(x)}</li>" for x in [*said, *result["notes"]])
        head = escape(f"{path}: {write_total(result)}")
        parts.append(f"<details><summary>{head}</summary><ul>{items}</ul></details>")
    return "\n".join(parts)
