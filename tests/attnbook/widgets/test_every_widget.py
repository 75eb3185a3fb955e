"""What holds of every widget's form for a page: its mount and its fallback."""

import json
import math

import pytest
import traitlets

from attnbook.widgets.base import BookWidget
from attnbook.widgets.mount import encode_nonfinite, render_mount
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


def test_nonfinite_numbers_are_encoded_as_text():
    state = {"a": [math.nan, -math.inf, 1.5], "b": (math.inf,)}
    message = {"a": ["NaN", "-Infinity", 1.5], "b": ["Infinity"]}
    assert encode_nonfinite(state) == message
    assert '"NaN"' in render_mount("x", {"a": math.nan}, "")


def test_the_state_contains_only_a_widgets_own_traits():
    class Small(BookWidget):
        _esm = "export default {}"
        numbers = traitlets.List([1]).tag(sync=True)
        private = traitlets.Int(3)

    assert Small().state() == {"numbers": [1]}
    with pytest.raises(NotImplementedError, match="Small has no method fall"):
        Small()._repr_mimebundle_()
