"""Measure: what the built pages weigh, and how fast they come and answer.

`make measure` prints a row a page: bytes over the wire by kind, requests, the
largest contentful paint and the total blocking time (with a processor slowed
4 times and a line of 10 Mbit/s and 40 ms), axe's findings, widgets. Beside
them stands a page of a book that keeps Jupyter Book's defaults.

Source: largest contentful paint and total blocking time,
    https://web.dev/articles/lcp and https://web.dev/articles/tbt
"""

import functools
import gzip
import http.server
import os
import statistics
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from workshop.book.browser import FLAGS, require_chromium
from workshop.book.measure_build import build_plain_book, measure_by_chapters
from workshop.book.weights import FIGURES, TEXT
from workshop.experiments.machine import hold_cores

SLOWDOWN, BITS, WAIT, REPEATS = 4, 10e6, 40, 3
WATCH = """
window.seen = { paint: 0, first: 0, tasks: [] };
const watch = (type, f) => new PerformanceObserver((list) =>
  list.getEntries().forEach(f)).observe({ type, buffered: true });
watch("largest-contentful-paint", (e) => { seen.paint = e.startTime; });
watch("paint", (e) => {
  if (e.name === "first-contentful-paint") seen.first = e.startTime;
});
watch("longtask", (e) => seen.tasks.push([e.startTime, e.duration]));
"""
BLOCKED = """() => seen.tasks
  .map(([start, long]) => start + long - Math.max(start, seen.first))
  .reduce((sum, long) => sum + Math.max(0, long - 50), 0)"""
AXE = """async () => (await axe.run({ exclude: [["pre"]] })).violations
  .filter((v) => ["serious", "critical"].includes(v.impact)).length"""
DOWN = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 800) {
    scrollTo({ top: y, behavior: "instant" });
    await new Promise((then) => setTimeout(then, 20));
  }
}"""
HEAD = (
    "| page | HTML | CSS | JS | fonts | figures | requests | to other hosts "
    "| LCP ms | TBT ms | axe | widgets |\n|---|" + "---:|" * 11
)


class CompressedHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as most hosts do: text with gzip."""

    def do_GET(self):
        """Send a file, packed if it is text."""
        path = Path(self.translate_path(self.path))
        if not path.is_file() or path.suffix not in TEXT:
            return super().do_GET()
        held = gzip.compress(path.read_bytes(), 6)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(held)))
        self.end_headers()
        return self.wfile.write(held)

    def log_message(self, *args):
        """Say nothing."""


@contextmanager
def serve_folder(folder: Path):
    """Serve a folder; give its address."""
    handler = functools.partial(CompressedHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def throttle_page(page) -> None:
    """Slow a page's processor and line."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    session.send("Network.enable")
    line = {"downloadThroughput": BITS / 8, "uploadThroughput": BITS / 8}
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": WAIT, **line},
    )


def open_page(browser, address: str, slow: bool):
    """Open a page in a new browser context; return it and its requests."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(WATCH)
    requests = []
    page.on("request", lambda r: requests.append(r.url))
    if slow:
        throttle_page(page)
    page.goto(address, wait_until="load")
    page.wait_for_timeout(1500)
    return page, requests


def classify_file(path: Path) -> str:
    """Return under which heading a file's bytes are counted."""
    if path.suffix in {".woff", ".woff2", ".ttf"}:
        return "fonts"
    return "figures" if path.suffix in FIGURES else path.suffix


def measure_page(browser, folder: Path, root: str, name: str) -> str:
    """Return a page's row of the table."""
    page, requests = open_page(browser, root + name, slow=False)
    page.evaluate(DOWN)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)  # widgets that were near stand now
    requests = [url for url in requests if not url.startswith(("blob", "data"))]
    ours = [url for url in requests if url.startswith(root)]
    sizes = dict.fromkeys((".html", ".css", ".js", "fonts", "figures"), 0)
    for url in ours:
        path = folder / url.removeprefix(root).partition("?")[0]
        if path.is_file():
            held = path.read_bytes()
            packed = gzip.compress(held, 6) if path.suffix in TEXT else held
            sizes[classify_file(path)] = sizes.get(classify_file(path), 0) + len(packed)
    page.add_style_tag(content="section{content-visibility:visible!important}")
    axe = Path(find_spec("axe_playwright_python").origin).parent
    page.evaluate((axe / "axe.min.js").read_text("utf8"))
    found = page.evaluate(AXE)
    widgets = page.locator("[data-state=ready]").count()
    page.context.close()
    times = []
    for _ in range(REPEATS):
        page, _ = open_page(browser, root + name, slow=True)
        times.append((page.evaluate("seen.paint"), page.evaluate(BLOCKED)))
        page.context.close()
    paint, blocked = (statistics.median(t) for t in zip(*times, strict=True))
    kinds = (".html", ".css", ".js", "fonts", "figures")
    weights = " | ".join(f"{sizes[k] / 1000:.1f}" for k in kinds)
    return (
        f"| {name} | {weights} | {len(ours)} | {len(requests) - len(ours)} "
        f"| {paint:.0f} | {blocked:.0f} | {found} | {widgets} |"
    )


def list_pages(folder: Path) -> list[str]:
    """Return the names of a book's pages."""
    hidden = {"_static", "_sources"}
    found = (p.relative_to(folder) for p in folder.rglob("*.html"))
    return sorted(str(p) for p in found if not hidden & {*p.parts})


def main() -> None:
    """Print the tables: this book's pages, a plain one, times of building."""
    from playwright.sync_api import sync_playwright

    chromium = require_chromium()
    books = {
        "this book": Path(sys.argv[1]),
        "Jupyter Book as it is": build_plain_book(Path()),
    }
    with hold_cores(os.cpu_count()), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
        for title, folder in books.items():
            print(f"\n{title} (kB over the wire)\n\n{HEAD}")
            with serve_folder(folder) as root:
                for name in list_pages(folder):
                    print(measure_page(browser, folder, root, name), flush=True)
        browser.close()
        print("\nchapters repeated: pages, seconds to build")
        print(*measure_by_chapters(Path()), sep="\n")


if __name__ == "__main__":
    main()
