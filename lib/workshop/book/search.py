"""Search: names such as `is_causal` are found by their words.

They stand in the index as words, and are split alike when a reader searches.
"""

import re

from sphinx.search.en import SearchEnglish


class BookSearch(SearchEnglish):
    """English words; an underscore separates two."""

    _word_re = re.compile(r"[^\W_]+")
    js_splitter_code = (
        "var splitQuery = (query) => "
        "query.split(/[^\\p{L}\\p{N}]+/u).filter((word) => word);"
    )


def setup(app) -> None:
    app.add_search_language(BookSearch)
