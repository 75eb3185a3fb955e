"""Results as lines, CSV, JSON and a page on a class; the same bytes every time."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path
from statistics import mean, median

Results = dict[Path, dict]
MOST_MISTAKES = 30  # rows of the table of mistakes
# What a teacher should look at: a reason, and what tells it in a note or in the
# message of a verdict. The first reason that fits is given.
SIGNS = {
    "stopped by a limit": (
        *("too-long", "was stopped after", "takes more than", "MemoryError"),
        *("File too large", "Too many open files", "Resource temporarily"),
        "was not run: the time",
    ),
    "refused by the sandbox": (
        *("PermissionError", "Operation not permitted", "Permission denied"),
        *("there is no network", "Network is unreachable", "Connection refused"),
    ),
    "ended its process early": ("ended its own process",),
    "not graded": ("cannot be copied to a process",),
    "sent malformed messages": (
        "wrote to the grader's socket",
        "form that the grader expects",
    ),
    "a check was called too often": ("is called more than",),
    "not executed": ("is not executed while grading",),
}
SLUGS = {
    "too-long": "stopped by a limit",
    "too-much": "stopped by a limit",
    "never-ran": "stopped by a limit",
    "tampered": "sent malformed messages",
}
# Nothing is loaded and no script runs, whatever the page contains.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'">
<title>Class report</title><style>{style}</style></head>
<body><main><h1>Class report</h1>
{body}
</main></body></html>
"""


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
    return sum(x["points"] for x in found), sum(x["of"] for x in found)


def make_writable(text: str) -> str:
    """Return a string that UTF-8 can encode: lone surrogates are escaped."""
    return text.encode("utf8", "backslashreplace").decode("utf8")


def shorten(name: str) -> str:
    """Return the name of a check as columns show it."""
    return name.removeprefix("check_")


def format_line(path: Path, result: dict) -> str:
    """Return one line on a notebook."""
    if result["error"]:
        return f"{path}: not graded, {result['error']}"
    got, most = count_points(result)
    marks = (f"{shorten(k)} {x['verdict'][:1]}" for k, x in result["exercises"].items())
    return f"{path}: {got} of {most} ({' '.join(marks)})"


def format_json(results: Results) -> str:
    """Return all results as JSON, notebooks in the order of their names."""
    found = []
    for path in sorted(results):
        got, most = count_points(results[path])
        found.append(
            {"notebook": str(path), "points": got, "of": most, **results[path]}
        )
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def format_csv(results: Results) -> str:
    """Return one row per notebook: points and mistakes of each exercise."""
    names = list_exercises(results)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    slugs = [f"{name} mistake" for name in names]
    table.writerow(["notebook", "points", "of", "error", *names, *slugs])
    for path in sorted(results):
        found = results[path]["exercises"]
        table.writerow(
            [
                *(escape_formula(str(path)), *count_points(results[path])),
                escape_formula(results[path]["error"] or ""),
                *(found.get(name, {}).get("points", "") for name in names),
                *(found.get(name, {}).get("mistake") or "" for name in names),
            ]
        )
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
        if reason := explain_verdict(given):
            found.append((reason, f"{shorten(name)}: {given['verdict']}"))
    for note in result["notes"]:
        if reason := find_sign(note):
            found.append((reason, note))
    return found


def explain_verdict(given: dict) -> str | None:
    """Return why a person should look at a verdict, if there is a reason."""
    verdict = given["verdict"]
    if verdict.startswith("… not graded"):
        return "not graded"
    if verdict.startswith("✓"):
        return "right with remarks" if verdict.startswith("✓ right.") else None
    if given["mistake"] == "error":
        return find_sign(verdict)
    return SLUGS.get(given["mistake"] or "")


def find_sign(text: str) -> str | None:
    """Return the reason that a text is a sign of."""
    for reason, signs in SIGNS.items():
        if any(sign in text for sign in signs):
            return reason
    return None


def make_cell(value: object, kind: str = "") -> str:
    """Return a table's cell; what students wrote is always text."""
    kind = f' class="{kind}"' if kind else ""
    return f"<td{kind}>{escape(str(value))}</td>"


def make_head(value: object, scope: str = "col", kind: str = "") -> str:
    """Return the head of a table's column or row."""
    kind = f' class="{kind}"' if kind else ""
    return f'<th scope="{scope}"{kind}>{escape(str(value))}</th>'


def make_section(
    title: str, heads: list[str], rows: Iterable[list[str]], before: str = ""
) -> str:
    """Return a heading, a sentence, and a table that scrolls in its own box."""
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    if not body:
        return f"<h2>{title}</h2>\n<p>None.</p>"
    before = f"<p>{before}</p>\n" if before else ""
    return (
        f"<h2>{title}</h2>\n{before}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{''.join(heads)}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>"
    )


def format_html(results: Results) -> str:
    """Return the report on a class as a page, which needs no other file."""
    results = {path: results[path] for path in sorted(results)}
    parts = (
        write_summary(results),
        write_attention(results),
        write_mistakes(results),
        write_exercises(results),
        write_points(results),
        write_submissions(results),
    )
    style = Path(__file__).with_suffix(".css").read_text("utf8")
    return PAGE.format(style=style, body="\n".join(parts))


def write_summary(results: Results) -> str:
    """Return how many submissions there are, and their points."""
    graded = [count_points(x) for x in results.values() if not x["error"]]
    left = len(results) - len(graded)
    text = f"{len(results)} submissions, {left} of them not graded."
    if graded:
        got, most = [x for x, _ in graded], max(x for _, x in graded)
        text += (
            f" Points of those that were graded: {mean(got):.1f} on average, "
            f"{median(got):g} in the median, {min(got)} to {max(got)}, "
            f"of {most} at most."
        )
    return f"<p>{text}</p>"


def write_attention(results: Results) -> str:
    """Return the submissions that a person should look at."""
    rows = [
        [make_head(path, "row"), make_cell(reason), make_cell(detail, "text")]
        for path, result in results.items()
        for reason, detail in find_reasons(result)
    ]
    return make_section(
        "Submissions that a person should look at",
        [make_head(x) for x in ("submission", "reason", "details")],
        rows,
        "These were not graded, or only in part; were stopped by a limit or "
        "refused by the sandbox; or are right with a remark.",
    )


def write_mistakes(results: Results) -> str:
    """Return the most frequent mistakes by name."""
    where: dict[str, set[Path]] = {}
    exercises: dict[str, Counter[str]] = {}
    for path, result in results.items():
        for name, given in result["exercises"].items():
            if slug := given["mistake"]:
                where.setdefault(slug, set()).add(path)
                exercises.setdefault(slug, Counter())[shorten(name)] += 1
    order = sorted(where, key=lambda slug: (-len(where[slug]), slug))
    rows = [
        [
            f"<td><code>{escape(slug)}</code></td>",
            make_cell(len(where[slug]), "number"),
            make_cell(
                ", ".join(f"{name} {n}" for name, n in exercises[slug].most_common()),
                "text",
            ),
        ]
        for slug in order[:MOST_MISTAKES]
    ]
    heads = [make_head(x) for x in ("mistake", "submissions", "exercises")]
    more = len(order) - MOST_MISTAKES
    before = f"{more} more mistakes are rarer." if more > 0 else ""
    return make_section("Most frequent mistakes", heads, rows, before)


def write_exercises(results: Results) -> str:
    """Return how the class did in each exercise."""
    rows = []
    for name in list_exercises(results):
        found = [
            x["exercises"][name] for x in results.values() if name in x["exercises"]
        ]
        marks = Counter(x["verdict"][:1] for x in found)
        points = f"{mean(x['points'] for x in found):.2f} of {found[0]['of']}"
        numbers = marks["✓"], marks["✗"], marks["…"], points
        cells = [make_cell(x, "number") for x in numbers]
        rows.append([make_head(shorten(name), "row"), *cells])
    heads = "exercise", "right", "wrong", "not attempted", "mean points"
    return make_section("Exercises", [make_head(x) for x in heads], rows)


def write_points(results: Results) -> str:
    """Return the points of every submission in every exercise."""
    names = list_exercises(results)
    rows = []
    for path, result in results.items():
        cells = []
        for name in names:
            if given := result["exercises"].get(name):
                mark = given["verdict"][:1]
                kind = {"✓": "right", "✗": "wrong"}.get(mark, "soft")
                cells.append(make_cell(f"{mark} {given['points']}", kind))
            else:
                cells.append("<td></td>")
        total = make_cell(write_total(result), "number")
        rows.append([make_head(path, "row"), total, *cells])
    heads = [make_head(x) for x in ("submission", "points")]
    return make_section(
        "Points",
        heads + [make_head(shorten(name), kind="steep") for name in names],
        rows,
        "✓ right, ✗ wrong, … not attempted or not graded; an empty cell "
        "belongs to a chapter that the notebook does not contain.",
    )


def write_total(result: dict) -> str:
    """Return a notebook's points in words."""
    got, most = count_points(result)
    return "not graded" if result["error"] else f"{got} of {most}"


def write_submissions(results: Results) -> str:
    """Return the verdicts and notes of every submission, folded."""
    parts = ["<h2>Verdicts and notes</h2>"]
    for path, result in results.items():
        said = [result["error"]] if result["error"] else []
        exercises = result["exercises"].items()
        said += [f"{shorten(name)}: {given['verdict']}" for name, given in exercises]
        items = "".join(f"<li>{escape(x)}</li>" for x in [*said, *result["notes"]])
        head = escape(f"{path}: {write_total(result)}")
        parts.append(f"<details><summary>{head}</summary><ul>{items}</ul></details>")
    return "\n".join(parts)
