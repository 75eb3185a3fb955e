"""The scripts behind the data, on small inputs made up for them.

tests/oracles/against_census.py reads the real models of the census.
"""

import hashlib
import json
import tarfile
from types import SimpleNamespace

import pytest
from PIL import Image

from attnbook.data import read_file
from attnbook.data.emoji import LEVELS, SIZE
from workshop.derive import digits, emoji, help_graph, spoken_digits
from workshop.derive.attention_census import describe_model, drop_repetitions
from workshop.derive.libreoffice import read_paragraphs

pytestmark = pytest.mark.precision

PAGE = """<html><body>
<p id="other" class="paragraph">Menu</p>
<h1 id="hd_id1"><a name="x"></a>Opening <b>a</b> file</h1>
<ul><li><p id="par_id2">Choose <span class="menuitem">
<span hidden="true" id="MAC1" class="MAC">Preferences</span>
<span hidden="true" id="default1"><i>Tools &amp; Options</i></span>
</span><img src="a.svg"><br>now.</p></li></ul>
after
</body></html>"""


def test_paragraphs_keep_the_default_wording_and_need_an_id():
    found = {k: " ".join(v.split()) for k, v in read_paragraphs(PAGE).items()}
    assert found == {
        "hd_id1": "Opening a file",
        "par_id2": "Choose Tools & Options now.",
    }


def test_a_page_of_the_graph_has_its_links_and_its_words():
    def page(links, words):
        hrefs = "".join(f'<a href="en-US/text/{x}">x</a>' for x in links)
        return (
            '<a href="en-US/text/c.html">menu</a><div id="DisplayArea">'
            f'{hrefs}<a href="https://x.org/d.html">x</a>'
            f'<p id="par_1">{words}</p></div>'
        )

    pages = {
        "a.html": page(["b.html#x", "a.html", "gone.html"], "rare Sums of it"),
        "b.html": page([], "sums sums"),
        "c.html": page(["a.html", "b.html?DbPAR=x"], "sums cells"),
    }
    pages |= {f"{i}.html": page([], "sums cells") for i in range(4)}
    rows, words = help_graph.make_rows(pages, "en-US/text/")
    assert words == ["cells", "sums"]
    assert rows[:3] == ["a.html\t1\t1", "b.html\t\t1", "c.html\t0 1\t0 1"]


def write_to(folder, module, monkeypatch):
    for name in ("workshop.derive", module.__name__):
        monkeypatch.setattr(f"{name}.FILES", folder)


def test_the_digits_take_turns_in_the_file(tmp_path, monkeypatch):
    write_to(tmp_path / "files", digits, monkeypatch)
    monkeypatch.setattr(digits, "PER_DIGIT", 1)
    (tmp_path / "src/digits").mkdir(parents=True)
    (tmp_path / "LICENSE").write_text("MIT")
    for digit in range(10):
        pixels = [0] * (2 * 28 * 28)
        pixels[digit] = 0.6  # the only gray pixel
        text = json.dumps({"data": pixels})
        (tmp_path / f"src/digits/{digit}.json").write_text(text)
    digits.main(str(tmp_path))
    data = read_file("digits/images.bz2", tmp_path / "files")
    content = digits.bz2.decompress(data)
    for digit in range(10):
        image = content[digit * 28 * 28 :][: 28 * 28]
        assert image[digit] == sum(image) == 9  # 0.6 of 15
    assert read_file("digits/LICENSE", tmp_path / "files") == b"MIT"


def test_an_emojis_margin_is_cut_off_and_the_rest_is_put_on_white():
    image = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (10, 38, 90, 62))  # 80 by 24 pixels, red
    found = emoji.reduce_image(image)
    white, red = (LEVELS - 1,) * 3, (LEVELS - 1, 0, 0)
    pixels = [tuple(found[i : i + 3]) for i in range(0, len(found), 3)]
    rows = [pixels[i : i + SIZE] for i in range(0, SIZE**2, SIZE)]
    assert [set(row) for row in rows] == ([{white}] * 7 + [{red}] * 6 + [{white}] * 7)


@pytest.mark.refusal
def test_a_source_that_is_not_the_pinned_one_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "package/a.txt")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(emoji.SHA256, "a.tgz", sha256)
    assert [*emoji.read_archive(path)] == ["package/a.txt"]
    monkeypatch.setitem(emoji.SHA256, "a.tgz", "0" * 64)
    with pytest.raises(ValueError, match=r"not the file .* SHA-256"):
        emoji.read_archive(path)
    with pytest.raises(ValueError, match=r"has no a/1f436\.png"):
        emoji.find_member({"a/1f431.png": b"cat"}, "a/{}.png", "🐶")
    with pytest.raises(ValueError, match=r"has 784 pixels, .* need 196,000"):
        digits.read_images(json.dumps({"data": [0.0] * 784}))
    with pytest.raises(ValueError, match=r"no text of 'License: CC-BY-SA-3.0'"):
        spoken_digits.cut_license("Files: *\n")


HEADER = """# Copyright (c) 2025 The Authors
@auto_docstring(checkpoint="lab/model-1")
class ModelConfig:
    kinds = ["sliding_attention", "linear_attention"]
"""
MODELING = """class ModelAttention(Module):
    def __init__(self):
        self.sinks = Parameter(empty(4))

class ModelLinearAttention(Module):
    def forward(self, x, gate):
        return x * sigmoid(gate)
"""


def test_a_model_is_described_by_its_softmax_attention():
    config = SimpleNamespace(
        model_type="made-up",
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=128,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    row = describe_model("model", config, HEADER, MODELING)
    assert row == {
        "model": "model",
        "checkpoint": "lab/model-1",
        "year": "2025",
        "layers": 2,
        "kinds": "1 window, 1 full",
        "other_kinds": "linear",
        "window": "128",
        "heads": "8",
        "key_value_heads": "2",
        "latent": "",
        "selection": "",
        "sinks": "yes",
        "gate": "",
    }
    config.layer_types = ["new_attention"]
    with pytest.raises(ValueError, match="kind 'new_attention'; known are"):
        describe_model("model", config, HEADER, MODELING)
    twice = [row, row | {"model": "model_text"}, row | {"layers": 3}]
    assert [x["layers"] for x in drop_repetitions(iter(twice))] == [2, 3]
