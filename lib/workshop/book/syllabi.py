"""Syllabi of one, four and fifteen weeks, made of the lessons of the chapters.

`lessons.toml` says what is taught when, which chapters' cores are read besides,
and which deeper sections. The minutes follow from the chapters.
"""

from workshop.book.front_matter import FrontMatter
from workshop.book.lessons import (
    LESSON,
    Lesson,
    count_minutes,
    read_lessons,
    read_table,
)

COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six")


def write_syllabi() -> str:
    """Return the syllabi, each as a heading, a text and a table."""
    lessons = read_lessons(read_table())
    return "\n\n".join(
        write_syllabus(data, lessons) for data in read_table()["syllabus"]
    )


def write_syllabus(data: dict, lessons: dict[str, Lesson]) -> str:
    """Return a syllabus.

    Raises:
        ValueError: naming the row, if it names a chapter or a deeper section
            that does not exist.
    """
    done = data.get("exercises", "exercises at home")
    lines = [f"| when | lessons | to read | {done} |", "|---|---|---|---|"]
    total = 0
    for row in data["rows"]:
        taught = [get_lesson(row, slug, lessons) for slug in row["teach"]]
        reading, minutes = list_reading(row, taught, lessons)
        after = sum(count_minutes(x.at_home) for x in taught)
        titles = "; ".join(link_chapter(x.front) for x in taught)
        total += LESSON * len(taught)
        lines.append(
            f"| {row['when']} | {titles} | {'; '.join(reading)}: "
            f"{minutes} minutes | {after} minutes |"
        )
    hours = f"{total // LESSON} lessons of {LESSON} minutes"
    lines += ["", f"Together {hours}, {total / 60:g} hours."]
    about = fill_about(data, lessons)
    return "\n".join([f"### {data['title']}", "", about, "", *lines])


def fill_about(data: dict, lessons: dict[str, Lesson]) -> str:
    """Return what a syllabus says of itself, with what follows from its rows.

    {read} names the chapters that are read and not taught, {count} says how
    many these are, {left_out} names those that are in no row, and {lab} says
    how long the deeper sections and the exercises of a row take.
    """
    rows = data["rows"]
    read = [slug for row in rows for slug in row.get("read", [])]
    taught = [slug for row in rows for slug in row["teach"]]
    labs = [count_lab(row, lessons) for row in rows]
    about = data["about"].format(
        read=name_chapters(read),
        count=COUNTS[len(read)],
        left_out=name_chapters([*lessons.keys() - {*read, *taught}]),
        lab=f"{min(labs)} to {max(labs)}",
    )
    return about.strip()


def count_lab(row: dict, lessons: dict[str, Lesson]) -> int:
    """Return the minutes of a row's deeper sections and exercises."""
    taught = [lessons[slug] for slug in row["teach"]]
    named = row.get("deeper", [])
    reading = sum(
        section.minutes
        for lesson in taught
        for section in lesson.deeper
        if section.title in named
    )
    return round(reading + sum(count_minutes(x.at_home) for x in taught))


def name_chapters(slugs: list[str]) -> str:
    """Return "chapter 1", or "chapters 1, 2 and 3"; "no chapter" if none."""
    numbers = [str(int(slug[:2])) for slug in sorted(slugs)]
    if len(numbers) < 2:
        return f"chapter {numbers[0]}" if numbers else "no chapter"
    return f"chapters {', '.join(numbers[:-1])} and {numbers[-1]}"


def get_lesson(row: dict, slug: str, lessons: dict[str, Lesson]) -> Lesson:
    """Return the lesson of a chapter that a row of a syllabus names.

    Raises:
        ValueError: if there is none.
    """
    if slug not in lessons:
        raise ValueError(
            f"{row['when']}: {slug!r} is no chapter; there are {[*lessons]}"
        )
    return lessons[slug]


def list_reading(
    row: dict, taught: list[Lesson], lessons: dict[str, Lesson]
) -> tuple[list[str], int]:
    """Return what is read in a row of a syllabus, and its minutes.

    These are the sections before each lesson, the core of chapters that are
    not taught, and deeper sections of those that are.
    """
    found = ["sections before the lesson"]
    minutes = sum(section.minutes for x in taught for section in x.before)
    for slug in row.get("read", []):
        front = get_lesson(row, slug, lessons).front
        found.append(f"the core of {link_chapter(front)}")
        minutes += front.core or front.minutes
    known = {s.title: (x, s) for x in taught for s in x.deeper}
    for title in row.get("deeper", []):
        if title not in known:
            raise ValueError(
                f"{row['when']}: {title!r} is no deeper section; there are {[*known]}"
            )
        lesson, section = known[title]
        found.append(f"[{title}]({lesson.front.slug}.ipynb#{section.anchor})")
        minutes += section.minutes
    return found, round(minutes)


def link_chapter(front: FrontMatter) -> str:
    """Return a link to a chapter, with its number and title."""
    return f"[{front.number}. {front.title}]({front.slug}.ipynb)"
