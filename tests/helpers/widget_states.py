"""The widgets' states that the built pages hold."""

import re

from built_pages import HTML, PAGES

STATE = re.compile(
    r'data-book-widget="(\w+)"><script type="application/json">(.*?)</script>',
    re.S,
)


FOUND = {}


for name in PAGES:
    for stem, text in STATE.findall((HTML / name).read_text("utf8")):
        FOUND.setdefault(stem, []).append(text)
