"""The tables of the teaching guide: stars, minutes, mistakes met most."""

import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path

from workshop.book.catalogue import entries

PAGE = Path("chapters/teaching.md")
OFTEN = 4  # exercises that know a mistake, for it to be listed


def teaching() -> str:
    """Return the guide with its tables fresh."""
    text = PAGE.read_text("utf8")
    for name, table in ("exercises", timings()), ("slugs", slugs()):
        marks = rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)"
        text = re.sub(marks, rf"\1\n{table}\n\n\2", text, flags=re.DOTALL)
    return text


def timings() -> str:
    """Return the exercises of each chapter with their stars and minutes."""
    rows = ["| chapter | exercises | minutes |", "|---|---|---|"]
    for chapter, group in groupby(entries(), key=lambda x: x.chapter):
        found = [entry.exercise for entry in group]
        each = "; ".join(
            f"{x.title} {'★' * x.stars} {x.minutes}" for x in found
        )
        total = sum(x.minutes for x in found)
        link = f"[{int(chapter[:2])}]({chapter}.ipynb)"
        rows.append(f"| {link} | {each} | {total} |")
    return "\n".join(rows)


def slugs() -> str:
    """Return the mistakes that most exercises know."""
    known, titles = defaultdict(list), {}
    for entry in entries():
        for mistake in entry.exercise.mistakes:
            known[mistake.slug].append(entry.name.removeprefix("check_"))
            titles.setdefault(mistake.slug, mistake.title)
    rows = ["| mistake | exercises that know it |", "|---|---|"]
    for slug, names in sorted(known.items(), key=lambda x: (-len(x[1]), x[0])):
        if len(names) >= OFTEN:
            said = ", ".join(dict.fromkeys(names))
            rows.append(f"| {titles[slug]} (`{slug}`) | {said} |")
    return "\n".join(rows)
