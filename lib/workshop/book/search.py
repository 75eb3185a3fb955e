"""Search: the index of the whole book without numbers, names as words.

A reader's browser loads the index with the search page. Sphinx's own script
ignores a number that is searched for, so numbers in the index, which are a
seventh of its words, are of no use. A name such as `is_causal` stands in the
index as its words, and is split alike when a reader searches for it.
"""

import re

from sphinx.search.en import SearchEnglish

# A number, or one with letters that are no word of their own: 0.5 has been
# split into 0 and 5; 3e9 and a digest's 70aa are numbers too, 2d and 16bit not.
# More letters behind a number are a label that it touches, as in 10picture.
NUMBER = re.compile(r"\d(?!\d?[a-df-z][a-z]{0,2}$)")
# Longer than any word: labels of a figure without a space, digests, alphabets.
LONGEST, LONGEST_WITH_DIGIT = 24, 12


class BookSearch(SearchEnglish):
    """English words, without numbers; an underscore separates two."""

    _word_re = re.compile(r"[^\W_]+")
    js_splitter_code = (
        "var splitQuery = (query) => "
        "query.split(/[^\\p{L}\\p{N}]+/u).filter((word) => word);"
    )

    def word_filter(self, word: str) -> bool:
        """Tell whether a stemmed word stands in the index."""
        digit = re.search(r"\d", word)
        if len(word) > (LONGEST_WITH_DIGIT if digit else LONGEST):
            return False
        return super().word_filter(word) and not NUMBER.match(word)


def setup(app) -> None:
    """Use it for English books."""
    app.add_search_language(BookSearch)
