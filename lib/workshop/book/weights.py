"""What a page weighs over the wire: gzip for text, as it is for the rest."""

import gzip
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

TEXT = {".html", ".css", ".js", ".svg", ".json"}
FIGURES = {".webp", ".png", ".jpg", ".gif", ".avif"}


def measure_size(path: Path) -> int:
    """Return how many bytes a file takes over the wire."""
    held = path.read_bytes()
    return len(gzip.compress(held, 6)) if path.suffix in TEXT else len(held)


def list_requests(page: Path) -> set[Path]:
    """Return the files that a page's HTML and styles name: it and them all."""
    found, unread = set(), [page]
    while unread:
        path = unread.pop()
        found.add(path)
        if path.suffix not in {".html", ".css"}:
            continue
        text = path.read_text("utf8")
        if path.suffix == ".html":
            tags = re.findall(r"<(?:script|img|link|source)\b[^>]*>", text)
            names = re.findall(r'\b(?:src|href)="([^"]+)"', " ".join(tags))
        else:
            names = re.findall(r"url\([\"']?([^)\"']+)", text)
        for name in names:
            target = path.parent / unquote(urlsplit(name).path)
            if re.match(r"\w+:", name) or target.suffix == ".html":
                continue
            if target.resolve() not in found:
                unread.append(target.resolve())
    return found


def sum_by_kind(page: Path) -> Counter:
    """Return a page's bytes over the wire, by kind of file."""
    sizes = Counter()
    for path in list_requests(page):
        figure = path.suffix in FIGURES or "_images" in path.parts
        sizes["figures" if figure else path.suffix] += measure_size(path)
    return sizes
