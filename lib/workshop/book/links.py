"""Links: whether what the pages link to elsewhere still answers.

`make links` asks each address once; no test does, since others' servers come
and go.
"""

import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urldefrag
from urllib.request import Request, urlopen

LINK = re.compile(r'\bhref="(https?://[^"]+)"')
# These answer machines with a refusal, whatever the address.
REFUSES_ROBOTS = {401, 403, 405, 406, 418, 429, 999}
NAME = "Mozilla/5.0 (compatible; a book that checks its links)"


def links(folder: Path) -> dict[str, set[str]]:
    """Return the addresses that the pages link to, each with its pages."""
    found = defaultdict(set)
    for path in sorted(folder.rglob("*.html")):
        for link in LINK.findall(path.read_text("utf8")):
            address = urldefrag(unescape(link)).url
            found[address].add(str(path.relative_to(folder)))
    return dict(found)


def answer(address: str, wait: float = 20.0) -> str:
    """Return "" if an address answers, else what is wrong with it."""
    request = Request(address, headers={"User-Agent": NAME})
    try:
        with urlopen(request, timeout=wait):
            return ""
    except HTTPError as error:
        return "" if error.code in REFUSES_ROBOTS else f"answers {error.code}"
    except (OSError, ValueError) as error:
        return f"does not answer: {error}"


def find_broken_links(found: dict[str, set[str]]) -> list[str]:
    """Return a line for each address that does not answer."""
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(answer, found)
        return [
            f"{address} {what} (in {', '.join(sorted(pages))})"
            for (address, pages), what in zip(
                found.items(), answers, strict=True
            )
            if what
        ]


def main() -> None:
    """Ask all, tell which fail."""
    found = links(Path(sys.argv[1]))
    lines = find_broken_links(found)
    print(*lines, f"{len(found)} links, {len(lines)} broken", sep="\n")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
