"""The widgets alive in JupyterLab: Python moves them, and they move Python.

`make lab` makes an environment for this and runs it; `make test` does not.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from workshop.book.browser import find_chromium

LOOKUP = """from attnbook.widgets.soft_lookup import SoftLookup
w = SoftLookup()
w"""
MAP = """from attnbook.widgets.attention_map import AttentionMap
rows = [[0.9, 0.1], [0.3, 0.7]]
w = AttentionMap([{"title": "two", "query": ["a", "b"],
                   "weights": [[rows, rows[::-1]]]}])
w"""


def notebook(*sources):
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for i, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Serve a folder with JupyterLab; give it and its address."""
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    settings = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "settings"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(f"--port={port}", "--IdentityProvider.token=", "--ip=127.0.0.1"),
        *(f"--ServerApp.root_dir={folder}", "--ServerApp.password="),
        "--LabApp.news_url=",
    ]
    server = subprocess.Popen(
        command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{address}/api", timeout=5).close()
            break
        except OSError:
            time.sleep(0.5)
    else:
        server.kill()
        pytest.fail(server.stderr.read().decode()[-2000:])
    yield folder, address
    server.terminate()
    server.wait(20)


@pytest.fixture
def opened(lab):
    folder, address = lab
    chromium = find_chromium()
    if chromium is None:
        pytest.fail("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.set_default_timeout(120_000)
        page.outside = []
        page.on(
            "request",
            lambda r: (
                None
                if r.url.startswith((address, "data:", "blob:", "ws"))
                else page.outside.append(r.url)
            ),
        )

        def open_notebook(name, *sources):
            text = json.dumps(notebook(*sources))
            (folder / f"{name}.ipynb").write_text(text, "utf8")
            page.goto(f"{address}/lab/tree/{name}.ipynb?reset")
            page.wait_for_selector(".jp-Notebook .jp-CodeCell >> nth=0")
            page.wait_for_selector("text=Python 3 (ipykernel) | Idle")
            return page

        yield open_notebook
        browser.close()


def run(page, number):
    """Run one cell and wait until the kernel is done with it."""
    cell = page.locator(".jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    done = cell.locator(".jp-InputPrompt")
    page.wait_for_function(
        "([node]) => /\\[\\d+\\]/.test(node.textContent)",
        arg=[done.element_handle()],
    )
    return cell.locator(".jp-OutputArea-output")


def test_a_lookup_is_moved_by_python_and_moves_it(opened):
    page = opened("lookup", LOOKUP, "w.temperature = 10.0", "w.temperature")
    run(page, 0)
    heat = page.locator(".sl input[type=range]").first
    heat.wait_for()
    assert page.locator(".sl output").first.inner_text() == "1"
    run(page, 1)
    page.wait_for_function("document.querySelector('.sl output').textContent === '10'")
    page.locator(".sl input[type=range]").first.focus()
    page.keyboard.press("End")
    page.wait_for_function("document.querySelector('.sl output').textContent === '100'")
    time.sleep(1)  # the message has to reach the kernel
    assert run(page, 2).inner_text().strip() == "100.0"
    assert page.outside == []


def test_a_map_is_moved_by_python_and_moves_it(opened):
    page = opened("map", MAP, "w.head = 1", "w.head")
    run(page, 0)
    status = page.locator(".am [role=status]").first
    status.wait_for()
    assert "head 1" in status.inner_text()
    run(page, 1)
    page.wait_for_function(
        "document.querySelector('.am .am-status').textContent.includes('head 2')"
    )
    page.locator(".am select").last.select_option("0")
    time.sleep(1)
    assert run(page, 2).inner_text().strip() == "0"
    assert page.outside == []
