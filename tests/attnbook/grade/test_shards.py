"""Shards of a class: every submission once, and merging names what is not."""

import json
from pathlib import Path

import pytest

from attnbook.grade import batch, command, report, shards
from attnbook.grade.shards import Shard, merge, parse_shard
from sandbox_limits import GRADING

pytestmark = GRADING
SETTINGS = {"seed": 0}
PATHS = [Path(f"class/{name}.ipynb") for name in "hbgcafed"]


def make_result(points=1):
    given = {"points": points, "of": 3, "verdict": "✓ right", "mistake": None}
    return {"error": None, "notes": [], "exercises": {"check_x": given}}


def write_shard(folder, shard, paths=PATHS, settings=SETTINGS):
    """Write a shard in which all submissions are graded."""
    found = {path: make_result() for path in shard.select(paths)}
    file = folder / f"{shard.number} of {shard.count}.json"
    file.write_text(shards.format_shard(found, shard, paths, settings), "utf8")
    return file


@pytest.mark.parametrize("count", [1, 2, 3, 8, 11])
def test_every_submission_is_in_one_shard_in_whatever_order(count):
    parts = [Shard(k, count).select(PATHS) for k in range(1, count + 1)]
    assert sorted(x for part in parts for x in part) == sorted(PATHS)
    again = [Shard(k, count).select(PATHS[::-1]) for k in range(1, count + 1)]
    assert parts == again
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("text", "one", "other"),
    [
        ("3/2", "K = 3", "N = 2"),
        ("0/2", "K = 0", "N = 2"),
        ("-1/2", "K = -1", "N = 2"),
        ("1/0", "K = 1", "N = 0"),
        ("a/b", "K = 'a'", "N = 'b'"),
        ("1.5/2", "K = '1.5'", "N = '2'"),
        ("3", "K = '3'", "N = ''"),
        ("", "K = ''", "N = ''"),
        ("1/2/3", "K = '1'", "N = '2/3'"),
    ],
)
def test_a_bad_shard_is_refused_with_both_numbers(text, one, other, capsys):
    with pytest.raises(ValueError, match="K") as caught:
        parse_shard(text)
    assert one in str(caught.value) and other in str(caught.value)
    with pytest.raises(SystemExit):
        command.main(["a.ipynb", f"--shard={text}", "--json", "x"])
    assert str(caught.value) in capsys.readouterr().err


def test_a_shard_without_a_file_and_a_merge_with_notebooks_are_refused(capsys):
    for words in (
        ["a.ipynb", "--shard", "1/2"],
        ["a.ipynb", "--merge", "a.json"],
        [],
    ):
        with pytest.raises(SystemExit):
            command.main(words)
    told = capsys.readouterr().err
    for part in ("--shard needs --json", "a.ipynb", "name the notebooks"):
        assert part in told


def test_merged_shards_are_what_one_run_writes(tmp_path, capsys):
    files = [write_shard(tmp_path, Shard(k, 3)) for k in (3, 1, 2)]
    together = {path: make_result() for path in PATHS}
    out = [tmp_path / name for name in ("o.json", "o.csv", "o.html")]
    words = ["--merge", *map(str, files)]
    for kind, file in zip(("--json", "--csv", "--html"), out, strict=True):
        words += [kind, str(file)]
    assert command.main(words) == 0
    assert out[0].read_text("utf8") == report.format_json(together)
    assert out[1].read_text("utf8") == report.format_csv(together)
    assert "8 submissions" in out[2].read_text("utf8")
    assert merge(out[:1]) == together
    assert len(capsys.readouterr().out.splitlines()) == len(PATHS)


def test_an_empty_shard_is_merged(tmp_path):
    files = [write_shard(tmp_path, Shard(k, 9)) for k in range(1, 10)]
    assert merge(files).keys() == {*PATHS}


def test_a_missing_submission_is_named(tmp_path, capsys):
    files = [write_shard(tmp_path, Shard(k, 3)) for k in (1, 3)]
    out = tmp_path / "o.json"
    words = ["--merge", *map(str, files), "--json", str(out)]
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert "1/3, 3/3" in told and not out.exists()
    for path in PATHS:
        assert (str(path) in told) == (path in Shard(2, 3).select(PATHS))


def test_a_doubled_submission_is_named_with_both_files(tmp_path):
    files = [write_shard(tmp_path, Shard(1, 2)), tmp_path / "more.json"]
    extra = Shard(1, 2).select(PATHS)[0]
    files[1].write_text(report.format_json({extra: make_result(0)}), "utf8")
    with pytest.raises(ValueError, match="more than once") as caught:
        merge(files)
    for part in (extra, *files):
        assert str(part) in str(caught.value)
    assert str(Shard(1, 2).select(PATHS)[1]) not in str(caught.value)


def test_shards_of_other_classes_and_settings_are_refused(tmp_path):
    first = write_shard(tmp_path, Shard(1, 2))
    for part, more in (
        ("lists class/z.ipynb", {"paths": [*PATHS, Path("class/z.ipynb")]}),
        ("'seed': 7", {"settings": {"seed": 7}}),
    ):
        with pytest.raises(ValueError, match=part):
            merge([first, write_shard(tmp_path, Shard(2, 2), **more)])


@pytest.mark.parametrize(
    "text", ["", "{", "7", "{}", "[7]", '[{"notebook": "a"}]', "\xff"]
)
def test_a_file_without_results_is_named(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text, "latin1")
    with pytest.raises(ValueError, match=r"other\.json is not a file"):
        merge([path])
    with pytest.raises(ValueError, match=r"none\.json cannot be read"):
        merge([tmp_path / "none.json"])


def test_a_name_that_is_no_text_survives(tmp_path):
    path = Path("a\udcff\n<b>.ipynb")
    file = tmp_path / "a.json"
    text = shards.format_shard({path: make_result()}, Shard(1, 1), [path], SETTINGS)
    file.write_text(report.make_writable(text), "utf8")
    assert merge([file]).keys() == {path}
    assert json.loads(file.read_text("utf8"))["shard"] == "1/1"


def test_an_interrupted_shard_goes_on_and_is_merged(tmp_path, monkeypatch, capsys):
    paths = [tmp_path / f"{name}.ipynb" for name in "abcdef"]
    for path in paths:
        path.write_text(path.stem)
    graded, stop = [], iter([2, 1, None])

    def run(left, *, workers, task):
        last = next(stop)
        for n, path in enumerate(left):
            if n == last:
                raise KeyboardInterrupt
            graded.append(path)
            yield path, make_result()

    monkeypatch.setattr(batch, "grade_in_pool", run)
    file = tmp_path / "a.json"
    words = [*map(str, paths), "--shard", "1/1", "--json", str(file)]
    for code in (command.INTERRUPTED, command.INTERRUPTED, 0):
        assert command.main(words) == code
        assert file.exists() != Path(f"{file}.unfinished").exists()
    assert graded == paths  # each of them once
    assert merge([file]).keys() == {*paths}
    assert "goes on" in capsys.readouterr().err
