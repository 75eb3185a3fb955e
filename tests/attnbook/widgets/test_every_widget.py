"""What holds of every widget's form for a page: its mount and its fallback."""

import json

import pytest

from javascript import WIDGETS
from widget_examples import EXAMPLES, HOSTILE, MARKUP


def read_state(text):
    script = text.split('<script type="application/json">')[1]
    return json.loads(script.split("</script>")[0])


def test_every_widget_has_an_example():
    scripts = {path.stem for path in WIDGETS.glob("*.js")}
    assert {*EXAMPLES} == scripts - {"shared", "quiz", "prediction"}


@pytest.mark.parametrize("stem", EXAMPLES)
def test_the_page_gets_a_mount_the_state_and_a_fallback(stem):
    widget = EXAMPLES[stem]
    data, _ = widget._repr_mimebundle_()
    text = data["text/html"]
    assert text.startswith(f'<div data-book-widget="{stem}">')
    assert read_state(text).keys() == widget.state().keys()
    assert widget.fallback() in text.split("</script>")[1]
    assert data["text/plain"] == f"{type(widget).__name__}()"


@pytest.mark.parametrize("stem", HOSTILE)
def test_labels_are_escaped_in_html(stem):
    data, _ = HOSTILE[stem]._repr_mimebundle_()
    text = data["text/html"]
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert MARKUP in json.dumps(read_state(text), ensure_ascii=False)
