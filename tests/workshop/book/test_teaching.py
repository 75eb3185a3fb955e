"""The tables of the teaching guide."""

from workshop.book import teaching
from workshop.book.catalogue import list_entries


def read_rows():
    """Return each slug's exercises by title, as the table shows them."""
    lines = [
        line
        for line in teaching.write_common_mistakes().splitlines()
        if "`" in line
    ]
    found = {}
    for line in lines:
        slug, each = line.strip("| ").split(" | ")
        pairs = (part.rsplit(": ", 1) for part in each.split("; "))
        found[slug.strip("`")] = {
            title: names.split(", ") for title, names in pairs
        }
    return found


def test_every_exercise_is_listed_under_its_own_title_of_a_mistake():
    own = {
        (mistake.slug, entry.name.removeprefix("check_")): mistake.title
        for entry in list_entries()
        for mistake in entry.exercise.mistakes
    }
    rows = read_rows()
    listed = {
        (slug, name): title
        for slug, titles in rows.items()
        for title, names in titles.items()
        for name in names
    }
    assert listed == {key: own[key] for key in own if key[0] in rows}


def test_only_mistakes_that_several_exercises_know_are_listed():
    counts = {
        slug: sum(map(len, titles.values()))
        for slug, titles in read_rows().items()
    }
    assert counts and min(counts.values()) >= teaching.OFTEN
    assert any(len(titles) > 1 for titles in read_rows().values())
