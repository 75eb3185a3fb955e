"""Recorded attention on pictures of digits and on sounds of spoken digits.

Source: the numbers are made by `workshop.experiments`, in the run
    `picture_and_sound`.
"""

from attnbook.records import read_record


def load_examples() -> list[dict]:
    """Return pictures and sounds, as `PictureAndSound` takes them.

    Returns:
        Dicts with `kind`, `title`, `gray`, `grid`, `milliseconds` and `steps`;
        each step has a `label`, a `part`, `thousandths` and a `box`.
    """
    return read_record("picture_and_sound")["results"]["items"]
