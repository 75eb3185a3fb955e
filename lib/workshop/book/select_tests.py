"""A pytest plugin: of a test of many chapters or exercises, the changed ones.

`make check` puts the words into CHECK_WORDS. Of a parametrised test with cases
whose names hold one of the words, only these cases run. If a chapter is among
the words, cases about other chapters are left out. Of the files in CHECK_CASES,
only cases whose names hold a word run.
"""

import json
import os
import re
from itertools import groupby

CHAPTER = re.compile(r"\d\d_[a-z]\w+")


def pytest_collection_modifyitems(config, items):
    """Leave out the cases about what has not changed."""
    words = json.loads(os.environ.get("CHECK_WORDS", "[]"))
    files = json.loads(os.environ.get("CHECK_CASES", "[]"))
    chapters = any(CHAPTER.fullmatch(word) for word in words)
    kept, left = [], []
    for test, group in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        about = [x for x in cases if any(word in x.name for word in words)]
        if not about and test.partition("::")[0] not in files:
            elsewhere = [x for x in cases if chapters and names_chapter(x.name)]
            about = [x for x in cases if x not in elsewhere]
        kept += about
        left += [x for x in cases if x not in about]
    items[:] = kept
    if left:
        config.hook.pytest_deselected(items=left)


def names_chapter(name: str) -> bool:
    """Tell whether a case, not about what has changed, is about a chapter."""
    return CHAPTER.search(name.partition("[")[2]) is not None
