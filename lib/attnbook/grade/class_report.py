"""A report on a class: one HTML page that needs nothing else.

The page is built as a tree of elements, so that everything that students wrote
is text: no name of a file, message or note can become markup.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from xml.etree import ElementTree

from attnbook.grade.report import Results, count_points

Element = ElementTree.Element
MOST_MISTAKES = 30  # rows of the table of mistakes
# Nothing is loaded and no script runs, whatever the page contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = Path(__file__).with_suffix(".css")

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
        *("not available while grading", "there is no network"),
        *("Network is unreachable", "Connection refused"),
    ),
    "ended its process early": ("ended its own process",),
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


@dataclass
class Tally:
    """How a class did in one exercise."""

    of: int = 0
    points: list[int] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)


@dataclass
class Count:
    """How often a mistake occurs: in which submissions and exercises."""

    where: set[str] = field(default_factory=set)
    exercises: Counter[str] = field(default_factory=Counter)
    titles: Counter[str] = field(default_factory=Counter)


def find_reasons(result: dict) -> list[tuple[str, str]]:
    """Return why a person should look at a submission, each with details."""
    found = []
    if result["error"]:
        found.append(("not graded", result["error"]))
    for name, given in result["exercises"].items():
        verdict, short = given["verdict"], shorten(name)
        if reason := explain_verdict(given):
            found.append((reason, f"{short}: {verdict}"))
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
        return "right with remarks" if has_remarks(given) else None
    if given["mistake"] == "error":
        return find_sign(verdict)
    return SLUGS.get(given["mistake"] or "")


def has_remarks(given: dict) -> bool:
    """Tell whether a right answer has remarks."""
    return given["verdict"].startswith("✓ right.")


def find_sign(text: str) -> str | None:
    """Return the reason that a text is a sign of."""
    for reason, signs in SIGNS.items():
        if any(sign in text for sign in signs):
            return reason
    return None


def shorten(name: str) -> str:
    """Return the name of a check as columns show it."""
    return name.removeprefix("check_")


def count_mistakes(results: Results) -> list[tuple[str, Count]]:
    """Return each mistake with its count, the most frequent first."""
    found: dict[str, Count] = defaultdict(Count)
    for path in sorted(results):
        for name, given in results[path]["exercises"].items():
            if slug := given["mistake"]:
                count = found[slug]
                count.where.add(str(path))
                count.exercises[shorten(name)] += 1
                title = given.get("title") or slug.replace("-", " ")
                count.titles[title] += 1
    order = sorted(found, key=lambda slug: (-len(found[slug].where), slug))
    return [(slug, found[slug]) for slug in order]


def tally_exercises(results: Results) -> dict[str, Tally]:
    """Return how the class did in each exercise."""
    found: dict[str, Tally] = defaultdict(Tally)
    for path in sorted(results):
        for name, given in results[path]["exercises"].items():
            tally = found[name]
            tally.of = given["of"]
            tally.points.append(given["points"])
            tally.marks[given["verdict"][:1]] += 1
    return found


# The page.


def make(tag: str, *children: "Element | str", **attributes: str) -> Element:
    """Return an element with these children; strings become text."""
    named = {name.rstrip("_"): value for name, value in attributes.items()}
    element = Element(tag, named)
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            element.append(child)
            last = child
        elif last is None:
            element.text = (element.text or "") + child
        else:
            last.tail = (last.tail or "") + child
    return element


def make_table(
    caption: str, head: list[Element], rows: Iterable[Iterable[Element]]
) -> Element:
    """Return a table that scrolls in its own box."""
    body = make("tbody", *(make("tr", *row) for row in rows))
    table = make("table", make("thead", make("tr", *head)), body)
    return make(
        "div",
        table,
        class_="scroll",
        tabindex="0",
        role="region",
        **{"aria-label": caption},
    )


def make_heads(*names: str) -> list[Element]:
    """Return the heads of a table's columns."""
    return [make("th", name, scope="col") for name in names]


def make_number(value: object) -> Element:
    """Return a cell with a number."""
    return make("td", str(value), class_="number")


def format_html(results: Results) -> str:
    """Return the report on a class as a page."""
    page = make(
        "html",
        make(
            "head",
            make("meta", charset="utf-8"),
            make(
                "meta",
                name="viewport",
                content="width=device-width, initial-scale=1",
            ),
            make(
                "meta",
                content=POLICY,
                **{"http-equiv": "Content-Security-Policy"},
            ),
            make("title", "Class report"),
            make("style", STYLE.read_text("utf8")),
        ),
        make(
            "body",
            make(
                "main",
                make("h1", "Class report"),
                *write_summary(results),
                *write_attention(results),
                *write_mistakes(results),
                *write_exercises(results),
                *write_points(results),
                *write_submissions(results),
            ),
        ),
        lang="en",
    )
    text = ElementTree.tostring(page, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n"


def write_summary(results: Results) -> Iterable[Element]:
    """Yield how many submissions there are, and their points."""
    graded = [x for x in results.values() if not x["error"]]
    left = len(results) - len(graded)
    text = f"{len(results)} submissions, {left} of them not graded."
    if graded:
        got = [count_points(x)[0] for x in graded]
        most = max(count_points(x)[1] for x in graded)
        text += (
            f" Points of those that were graded: {mean(got):.1f} on average, "
            f"{median(got):g} in the median, {min(got)} to {max(got)}, "
            f"of {most} at most."
        )
    yield make("p", text)


def write_attention(results: Results) -> Iterable[Element]:
    """Yield the submissions that a person should look at."""
    yield make("h2", "Submissions that a person should look at")
    found = [
        (str(path), reason, detail)
        for path in sorted(results)
        for reason, detail in find_reasons(results[path])
    ]
    if not found:
        yield make("p", "None.")
        return
    yield make(
        "p",
        "These were not graded, or only in part; were stopped by a limit or "
        "refused by the sandbox; or are right with a remark.",
    )
    yield make_table(
        "Submissions that a person should look at",
        make_heads("submission", "reason", "details"),
        (
            [
                make("th", name, scope="row"),
                make("td", reason),
                make("td", detail, class_="text"),
            ]
            for name, reason, detail in found
        ),
    )


def write_mistakes(results: Results) -> Iterable[Element]:
    """Yield the most frequent mistakes by name."""
    yield make("h2", "Most frequent mistakes")
    counted = count_mistakes(results)
    if not counted:
        yield make("p", "None.")
        return
    rows = []
    for slug, count in counted[:MOST_MISTAKES]:
        titles = "; ".join(title for title, _ in count.titles.most_common())
        where = (f"{name} {n}" for name, n in count.exercises.most_common())
        rows.append(
            [
                make("td", titles, class_="text"),
                make("td", make("code", slug)),
                make_number(len(count.where)),
                make("td", ", ".join(where), class_="text"),
            ]
        )
    heads = make_heads("mistake", "name", "submissions", "exercises")
    yield make_table("Most frequent mistakes", heads, rows)
    if (more := len(counted) - MOST_MISTAKES) > 0:
        yield make("p", f"{more} more mistakes are rarer.", class_="soft")


def write_exercises(results: Results) -> Iterable[Element]:
    """Yield how the class did in each exercise."""
    yield make("h2", "Exercises")
    rows = [
        [
            make("th", shorten(name), scope="row"),
            make_number(tally.marks["✓"]),
            make_number(tally.marks["✗"]),
            make_number(tally.marks["…"]),
            make_number(f"{mean(tally.points):.2f} of {tally.of}"),
        ]
        for name, tally in tally_exercises(results).items()
    ]
    names = ("exercise", "right", "wrong", "not attempted", "mean points")
    yield make_table("Exercises", make_heads(*names), rows)


def write_points(results: Results) -> Iterable[Element]:
    """Yield the points of every submission in every exercise."""
    yield make("h2", "Points")
    yield make(
        "p",
        "✓ right, ✗ wrong, … not attempted or not graded; an empty cell "
        "belongs to a chapter that the notebook does not contain.",
    )
    names = list(tally_exercises(results))
    heads = make_heads("submission", "points") + [
        make("th", shorten(name), scope="col", class_="steep") for name in names
    ]
    rows = []
    for path in sorted(results):
        got, most = count_points(results[path])
        found = results[path]["exercises"]
        cells = [write_cell(found.get(name)) for name in names]
        total = "not graded" if results[path]["error"] else f"{got} of {most}"
        head = make("th", str(path), scope="row")
        rows.append([head, make_number(total), *cells])
    yield make_table("Points", heads, rows)


def write_cell(given: dict | None) -> Element:
    """Return the cell of one exercise: the mark and the points."""
    if not given:
        return make("td")
    mark = given["verdict"][:1]
    kind = {"✓": "right", "✗": "wrong"}.get(mark, "soft")
    return make("td", f"{mark} {given['points']}", class_=kind)


def write_submissions(results: Results) -> Iterable[Element]:
    """Yield the verdicts and notes of every submission, folded."""
    yield make("h2", "Verdicts and notes")
    for path in sorted(results):
        result = results[path]
        got, most = count_points(result)
        said = [result["error"]] if result["error"] else []
        said += [
            f"{shorten(name)}: {given['verdict']}"
            for name, given in result["exercises"].items()
        ]
        said += result["notes"]
        total = "not graded" if result["error"] else f"{got} of {most}"
        yield make(
            "details",
            make("summary", f"{path}: {total}"),
            make("ul", *(make("li", text) for text in said)),
        )
