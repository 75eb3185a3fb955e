"""What checks the repository on GitHub and before a commit."""

import json
import re
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.precision
ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text("utf8")
README = (ROOT / "README.md").read_text("utf8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)


def jobs(path):
    return yaml.safe_load(path.read_text("utf8"))["jobs"].values()


def commands(path):
    return {x["run"] for job in jobs(path) for x in job["steps"] if "run" in x}


def test_hooks_run_the_commands_of_make_lint():
    recipe = re.search(r"(?m)^lint:.*\n((?:\t.+\n)+)", MAKEFILE)[1]
    linting = [x.strip().replace("$(BIN)", ".venv/bin") for x in recipe.splitlines()]
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf8")
    hooks = yaml.safe_load(text)["repos"][0]["hooks"]
    entries = [x["entry"] for x in hooks]
    assert [re.sub(r"^bash -c '(.*)'$", r"\1", x) for x in entries] == linting


def test_the_two_commands_run_on_linux_and_macos_with_every_python():
    path = ROOT / ".github/workflows/test.yml"
    (job,) = jobs(path)
    matrix = job["strategy"]["matrix"]
    assert [x.partition("-")[0] for x in matrix["os"]] == ["ubuntu", "macos"]
    assert re.findall(r"You need Python (.+), and", README) == [
        "{}, {} or {}".format(*matrix["python"])
    ]
    assert {"make book", "make test", ".ci/run"} <= commands(path)


@each_workflow
def test_every_target_that_a_workflow_makes_exists(path):
    for command in commands(path):
        for target in re.findall(r"^make ([\w-]+)", command):
            assert re.search(rf"(?m)^{target}:", MAKEFILE)


@each_workflow
def test_actions_are_pinned_and_may_write_nothing_but_pages(path):
    text = path.read_text("utf8")
    for action in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v[\d.]+", action)
    assert yaml.safe_load(text)["permissions"] == {}
    for job in jobs(path):
        writing = {k for k, v in job["permissions"].items() if v == "write"}
        assert writing <= {"pages", "id-token"}
        assert not writing or "actions/deploy-pages" in str(job["steps"])


def test_the_linter_knows_the_functions_that_widgets_share():
    config = json.loads((ROOT / ".oxlintrc.json").read_text("utf8"))
    known = config["overrides"][0]["globals"]
    shared = (ROOT / "lib/attnbook/widgets/shared.js").read_text("utf8")
    assert set(known) == set(re.findall(r"(?m)^(?:export )?function (\w+)", shared))


def test_a_mypy_exception_names_its_rule_and_the_comment_gives_a_reason():
    for path in (ROOT / "lib").rglob("*.py"):
        lines = path.read_text("utf8").splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            if "type: ignore" in line:
                assert re.search(r"# type: ignore\[[\w-]+\]", line), path
                reason = re.search(r"ignore\[[\w-]+\]  # \w", line)
                assert reason or before.strip().startswith("# "), path
