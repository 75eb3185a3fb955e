"""The check of external links, tried on a server of our own."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from workshop.book import links

pytestmark = pytest.mark.precision


@pytest.fixture
def address():
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path[1:4]))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_links_are_found_once_with_their_pages(tmp_path):
    text = '<a href="https://a.example/x#y">a</a><a href="b.html">b</a>'
    for name in ("one.html", "two.html"):
        (tmp_path / name).write_text(text)
    assert links.links(tmp_path) == {
        "https://a.example/x": {"one.html", "two.html"}
    }


def test_links_that_do_not_respond_are_reported(address):
    found = {f"{address}/{code}": {"p.html"} for code in (200, 403, 404, 500)}
    told = links.find_broken_links({**found, "http://127.0.0.1:1/": {"q.html"}})
    assert len(told) == 3
    assert f"{address}/404 answers 404 (in p.html)" in told
    assert any("does not answer" in line for line in told)


def test_the_command_checks_links_and_counts_broken_ones(address, tmp_path):
    """The module as `make links` runs it, on two pages and our own server."""
    (tmp_path / "chapters").mkdir()
    good = f'<a href="{address}/200#part">a</a> <a href="{address}/403">b</a>'
    page, other = tmp_path / "index.html", tmp_path / "chapters/one.html"
    page.write_text(good)
    other.write_text(good)
    command = [sys.executable, "-m", "workshop.book.links", str(tmp_path)]
    # No proxy between us and ourselves.
    quiet = {**os.environ, "no_proxy": "*", "NO_PROXY": "*"}

    def said():
        return subprocess.run(
            command, capture_output=True, text=True, env=quiet, check=False
        )

    assert (said().returncode, said().stdout) == (0, "2 links, 0 broken\n")
    other.write_text(good + f'<a href="{address}/404?a=1&amp;b=2">c</a>')
    told = said()
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        f"{address}/404?a=1&b=2 answers 404 (in chapters/one.html)",
        "3 links, 1 broken",
    ]
