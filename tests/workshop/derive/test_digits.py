"""The digits of an npm package become one file that is read back."""

import json

import pytest

from attnbook.data import read_file
from workshop.derive import digits

pytestmark = pytest.mark.precision


def write_package(folder, number):
    """Write a package: one image of each digit, a single gray pixel in it."""
    (folder / "src/digits").mkdir(parents=True)
    (folder / "LICENSE").write_text("MIT")
    for digit in range(10):
        pixels = [0] * (number * 28 * 28)
        pixels[digit] = 0.6
        text = json.dumps({"data": pixels})
        (folder / f"src/digits/{digit}.json").write_text(text)


def test_the_digits_take_turns_in_the_file(tmp_path, monkeypatch):
    written = tmp_path / "files"
    for module in ("workshop.derive", "workshop.derive.digits"):
        monkeypatch.setattr(f"{module}.FILES", written)
    monkeypatch.setattr(digits, "PER_DIGIT", 1)
    write_package(tmp_path / "package", number=2)
    digits.main(str(tmp_path / "package"))
    content = digits.bz2.decompress(read_file("digits/images.bz2", written))
    assert len(content) == 10 * 28 * 28
    for digit in range(10):
        image = content[digit * 28 * 28 :][: 28 * 28]
        assert image[digit] == 9  # 0.6 of 15
        assert sum(image) == 9
    assert read_file("digits/LICENSE", written) == b"MIT"


@pytest.mark.refusal
def test_a_file_with_too_few_pixels_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"has 784 pixels, .* need 196,000"):
        digits.read_images(json.dumps({"data": [0.0] * 784}))


def test_the_images_have_their_license_and_their_authors():
    assert b"MIT License" in read_file("digits/LICENSE")
    readme = read_file("digits/README.md").decode()
    for name in ("Juan Cazala", "Yann LeCun", "Corinna Cortes", "Burges"):
        assert name in readme
