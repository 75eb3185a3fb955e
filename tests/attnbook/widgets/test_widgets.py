import json
import math

import pytest
import traitlets

from attnbook.widgets.alignment_player import (
    AlignmentPlayer,
    list_largest_weights,
)
from attnbook.widgets.base import BookWidget
from attnbook.widgets.mount import encode_nonfinite, render_mount


def example(**changes):
    return {
        "title": "I am",
        "source": ["i", "am"],
        "reference": ["je", "suis"],
        "with": {
            "output": ["je", "suis"],
            "weights": [[0.91234, 0.08766], [0.2, 0.8], [0.5, 0.5]],
        },
        "without": {"output": ["tu", "es"]},
    } | changes


def html(widget):
    data, _ = widget._repr_mimebundle_()
    return data["text/html"]


def state(text):
    script = text.split('<script type="application/json">')[1]
    return json.loads(script.split("</script>")[0])


def test_the_page_gets_the_state_and_a_fallback():
    text = html(AlignmentPlayer([example()]))
    assert text.startswith('<div data-book-widget="alignment_player">')
    (only,) = state(text)["examples"]
    assert only["with"]["weights"][0] == [0.912, 0.088]
    fallback = text.split("</script>")[1]
    assert "Without attention: tu es" in fallback
    assert "<td>suis</td><td>am</td><td>0.80</td>" in fallback


def test_labels_are_escaped_in_html():
    evil = "</script><img src=x onerror=alert(1)>"
    made = example(
        title=evil,
        source=[evil, "am"],
        reference=[evil],
        without={"output": [evil]},
    )
    text = html(AlignmentPlayer([made]))
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert state(text)["examples"][0]["source"][0] == evil


def test_the_plain_text_contains_no_memory_address():
    data, _ = AlignmentPlayer([example()])._repr_mimebundle_()
    assert data["text/plain"] == "AlignmentPlayer()"
    assert "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize("shape", ["alone", "with metadata", "none"])
def test_every_form_of_anywidgets_bundle_is_accepted(monkeypatch, shape):
    import anywidget

    data = {"text/plain": "<at 0x7f>"}
    given = {"alone": data, "with metadata": (data, {"a": 1}), "none": None}
    monkeypatch.setattr(
        anywidget.AnyWidget,
        "_repr_mimebundle_",
        lambda self, **kwargs: given[shape],
        raising=False,
    )
    made, metadata = AlignmentPlayer([example()])._repr_mimebundle_()
    assert made["text/plain"] == "AlignmentPlayer()"
    assert metadata == ({"a": 1} if shape == "with metadata" else {})


def test_nonfinite_numbers_are_encoded_as_text():
    state = {"a": [math.nan, -math.inf, 1.5], "b": (math.inf,)}
    assert encode_nonfinite(state) == {
        "a": ["NaN", "-Infinity", 1.5],
        "b": ["Infinity"],
    }
    assert '"NaN"' in render_mount("x", {"a": math.nan}, "")


def test_the_state_contains_only_a_widgets_own_traits():
    class Small(BookWidget):
        _esm = "export default {}"
        numbers = traitlets.List([1]).tag(sync=True)
        private = traitlets.Int(3)

    assert Small().state() == {"numbers": [1]}
    with pytest.raises(NotImplementedError, match="Small has no method fall"):
        html(Small())


def test_the_word_with_the_largest_weight_is_named():
    made = AlignmentPlayer([example()]).examples[0]
    assert list_largest_weights(made) == [
        ("je", "i", 0.912),
        ("suis", "am", 0.8),
    ]


def test_inputs_are_not_changed_in_place():
    given = example()
    before = json.dumps(given)
    AlignmentPlayer([given])
    assert json.dumps(given) == before


def test_examples_set_later_are_checked_too():
    player = AlignmentPlayer([example()])
    with pytest.raises(ValueError, match="source has 0 words"):
        player.examples = [example(source=[])]
    player.examples = [example(title="another")]
    assert "another" in html(player)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": []}, "source has 0 words"),
        ({"source": "i am"}, "list of strings, not 'i am'"),
        ({"source": ["i"]}, "2 weights for 1 source"),
        ({"with": {"output": ["je"], "weights": []}}, "0 rows .* 1 output"),
        (
            {"with": {"output": [], "weights": [[1, 0]] * 2}},
            "2 rows of weights for 0 output",
        ),
        ({"reference": [3]}, r"list of strings, not \[3\]"),
        ({"reference": None}, "list of strings, not None"),
        (
            {"with": {"output": ["je"], "weights": [[0.5, math.nan]]}},
            "row 0 gives source word 1, 'am', the weight nan",
        ),
        (
            {"with": {"output": ["je"], "weights": [[-math.inf, 1]]}},
            "source word 0, 'i', the weight -inf",
        ),
        ({"with": {"output": ["je"]}}, "`with` lacks 'weights'"),
        ({"with": 3}, "`with` lacks 'output'; it has 3"),
        ({"without": {}}, "`without` lacks 'output'"),
    ],
)
def test_examples_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        AlignmentPlayer([example(**changes)])


@pytest.mark.refusal
def test_a_missing_part_is_named():
    bad = example()
    del bad["without"]
    with pytest.raises(ValueError, match="an example lacks 'without'"):
        AlignmentPlayer([bad])
    with pytest.raises(ValueError, match="0 examples"):
        AlignmentPlayer([])
