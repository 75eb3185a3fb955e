"""The table of models is what the pinned transformers says, row by row."""

from importlib.metadata import version

from attnbook.data import read_lines
from attnbook.data.attention_census import RELEASE, load_census
from workshop.derive.attention_census import COLUMNS, drop_repetitions, read_models


def test_the_stored_table_is_the_one_read_again():
    assert version("transformers") == RELEASE
    found = drop_repetitions(read_models())
    stored = read_lines(f"attention_census/transformers-{RELEASE}.tsv")
    lines = ["\t".join(str(row[x]) for x in COLUMNS) for row in found]
    assert stored == ["\t".join(COLUMNS), *lines]
    assert len(load_census()) == len(found)
