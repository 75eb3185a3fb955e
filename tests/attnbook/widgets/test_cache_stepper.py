"""The cache stepper: its pages, its window and its bytes are the library's."""

import random

import pytest
import torch

from attnbook.decoding.caches import CacheSizes, KVCache, PagedCache, PagePool
from attnbook.decoding.decoder import mark_visible
from attnbook.widgets.cache_stepper import (
    KINDS,
    MOST,
    PAGES,
    POOL,
    WINDOWED,
    CacheStepper,
)
from javascript import Module


def states(count=120):
    rng = random.Random(0)
    for _ in range(count):
        yield {
            "kind": rng.choice([*KINDS]),
            "step": rng.randint(0, MOST),
            "page": rng.choice(PAGES),
            "window": rng.randint(2, 12),
        }


def test_pages_are_those_of_a_paged_cache():
    small = CacheSizes(1, 1, 1, 1)
    for page in PAGES:
        pool = PagePool(small, POOL // page, page)
        pool.free = CacheStepper(page=page).list_order()[::-1]
        cache = PagedCache(pool, 1)
        for step in range(1, MOST + 1):
            widget = CacheStepper(step=step, page=page)
            cache.reserve(widget.count_tokens() - int(cache.lengths[0]))
            assert cache.sequences[0].pages == widget.list_table()


def test_bytes_are_those_of_a_cache_with_all_tokens():
    for name, sizes in KINDS.items():
        tokens = CacheStepper(step=MOST).count_tokens()
        widget = CacheStepper(kind=name, step=MOST, page=2, window=12)
        kept = 12 if name == WINDOWED else tokens
        cache = KVCache(sizes, 1, kept)
        assert widget.count_bytes(name) == (cache.count_bytes(),) * 2


def test_a_window_is_what_the_newest_query_can_attend_to():
    for given in states():
        widget = CacheStepper(**given | {"kind": WINDOWED})
        positions = torch.arange(widget.count_tokens())[None]
        visible = mark_visible(positions[:, -1:], positions, widget.window).flatten()
        assert visible.logical_not().sum() == widget.count_outside(WINDOWED)
        for i, number in enumerate(widget.list_table()):
            inside = visible[i * widget.page : (i + 1) * widget.page].any()
            assert (number >= 0) == inside


def test_the_fallback_is_a_table_of_the_numbers():
    data, _ = CacheStepper(kind=WINDOWED, step=6, page=2, window=5)._repr_mimebundle_()
    fallback = data["text/html"].split("</script>")[1]
    assert "After 6 passes, 11 tokens: “the cat sat" in fallback
    assert "Block table: free, free, free, 10, 13, 0." in fallback
    assert "<th>MLA</th><td>36,864</td><td>442,368</td><td>405,504</td>" in fallback


@pytest.fixture(scope="module")
def script():
    return Module("cache_stepper")


def test_the_pages_numbers_are_the_librarys(script):
    for given in states():
        widget = CacheStepper(**given)
        state = widget.state()
        assert script.call("cleanState", state) == state
        assert script.call("listOrder", state) == widget.list_order()
        for kind in KINDS:
            assert script.call("listTable", state, kind) == widget.list_table(kind)
            found = tuple(script.call("countBytes", state, kind))
            assert found == widget.count_bytes(kind)
        assert script.call("describeStep", state)
