"""The built pages and their widgets: which there are, how a browser sees them."""

import functools
import http.server
import re
import threading
from contextlib import contextmanager
from pathlib import Path

HTML = Path(__file__).parents[2] / "_build/html"
PAGES = sorted(
    str(p.relative_to(HTML))
    for p in HTML.rglob("*.html")
    if not {"_static", "_sources"} & {*p.relative_to(HTML).parts}
)
CHAPTERS = [p for p in PAGES if re.match(r"chapters/\d\d_", p)]
# What a prediction covers is mounted when the reader has answered.
READY = (
    "() => [...document.querySelectorAll('[data-book-widget]')]"
    ".every(e => e.dataset.state || e.closest('.covered'))"
)

PATIENCE, PAUSE = 120_000, 1_000  # milliseconds

READ = """async () => {
  const frame = () => new Promise((then) => requestAnimationFrame(then));
  // The page prepares its code cells when it is idle: after that, not before.
  await new Promise((then) => requestIdleCallback(then, { timeout: 5000 }));
  const end = () => document.documentElement.scrollHeight;
  for (let y = 0; y < end(); y += 2 * innerHeight) {
    scrollTo({ top: y, behavior: "instant" });
    await frame();
    await frame();
  }
  scrollTo({ top: 0, behavior: "instant" });
  await frame();
  // A prediction that covers its result moves what follows, perhaps past the
  // reader: then the page is read once more.
  const ready = READY;
  for (let i = 0; i < 100 && !ready(); i++) {
    await new Promise((then) => setTimeout(then, 20));
  }
  return ready();
}""".replace("READY", READY)


# What sticks out of the window, unless it lies in a box that scrolls sideways.
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  const scrolls = (e) => e && e !== document.body
    && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
  return [...document.querySelectorAll("main *")].filter((e) => {
    const { left, right, width, height } = e.getBoundingClientRect();
    const text = getComputedStyle(e).overflowX === "visible" ? e.scrollWidth : 0;
    return width > 1 && height > 1 && !e.closest("math") && e.checkVisibility()
      && (Math.max(right, left + text) > wide + 1 || left < -1)
      && !scrolls(e.parentElement);
  }).map((e) => e.outerHTML.slice(0, 120));
}"""
STATE = re.compile(
    r'data-book-widget="(\w+)"><script type="application/json">(.*?)</script>', re.S
)


@functools.cache
def read_widget_states():
    """Return the texts of the states in which the pages show each widget."""
    found = {}
    for name in PAGES:
        for stem, text in STATE.findall((HTML / name).read_text("utf8")):
            found.setdefault(stem, []).append(text)
    return found


@functools.cache
def read_widget_code():
    """Return what every page with one widget begins and ends with."""
    from attnbook.widgets.mount import read_modules
    from workshop.book.mounts import MOUNT, WIDGETS, make_classic_script

    scripts = "".join(
        f"<script>{make_classic_script(stem, text)}</script>"
        for stem, text in read_modules().items()
    )
    styles = "".join(
        f"<style>{style.read_text('utf8')}</style>" for style in WIDGETS.glob("*.css")
    )
    head = f'<!doctype html><html lang="en"><meta charset="utf8">{styles}'
    return head, f"{scripts}<script>{MOUNT.read_text('utf8')}</script>"


def write_widget_page(state, stem, copies=1, around="{}"):
    """Return a page with a widget in this state, without any built page."""
    from attnbook.widgets.mount import render_mount

    head, tail = read_widget_code()
    mounts = render_mount(stem, state, "<p>fallback</p>") * copies
    body = around.replace("{}", mounts)
    return f"{head}<title>page</title><body>{body}{tail}"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextmanager
def serve(folder=HTML):
    """Serve the pages of a folder; give the address they begin with."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def watch(context, root):
    """Return a page that notes what it asks for and complains of."""
    page = context.new_page()
    page.wrong = []
    page.on(
        "console",
        lambda m: page.wrong.append(m.text) if m.type in ("error", "warning") else 0,
    )
    page.on("pageerror", lambda e: page.wrong.append(str(e)))

    def note(text, url, wrong):
        if wrong:
            page.wrong.append(f"{text}: {url}")

    # Leaving a page aborts what it still asks for.
    page.on(
        "requestfailed",
        lambda r: note("failed", r.url, r.failure != "net::ERR_ABORTED"),
    )
    page.on("response", lambda r: note(r.status, r.url, r.status >= 400))
    inside = root, "data:", "blob:"
    page.on("request", lambda r: note("outside", r.url, not r.url.startswith(inside)))
    return page


def read_to_end(page):
    """Scroll an open page to its end, and wait until its widgets stand."""
    from playwright.sync_api import TimeoutError  # not on every machine

    page.wait_for_load_state("load")
    # Again, should the page lead elsewhere. A busy machine may take its time.
    for _ in range(PATIENCE // PAUSE):
        page.wait_for_function(READ, timeout=PATIENCE)
        try:
            page.wait_for_function(READY, timeout=PAUSE)
        except TimeoutError:
            continue
        return
    places = page.locator("[data-book-widget]:not([data-state])").all()
    names = [place.get_attribute("data-book-widget") for place in places]
    raise TimeoutError(f"{page.url} has widgets without state: {names}")
