"""Executing a chapter again changes nothing that any machine computes alike."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from workshop.book.notebook import (
    copy_prose,
    execute,
    normalize,
)

pytestmark = pytest.mark.precision


TEXT = """---
jupytext:
  formats: ipynb,md:myst
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A chapter

```{code-cell} ipython3
import sys

from tqdm.auto import tqdm

print("one")
print("two")
print("three", file=sys.stderr)
for _ in tqdm(range(3)):
    pass
```

```{code-cell} ipython3
:tags: [measured-here]

import time

time.time()
```
"""


def test_executing_again_changes_only_outputs_tagged_measured_here(tmp_path):
    source = tmp_path / "09_some.md"
    source.write_text(TEXT)
    first, second = execute(source), execute(source)
    for notebook in (first, second):
        for cell in notebook.cells:
            if "measured-here" in cell.metadata.get("tags", []):
                assert len(cell.outputs) == 1
                cell.outputs = []
    assert nbformat.writes(first) == nbformat.writes(second)
    outputs = first.cells[1].outputs
    texts = [(o.name, o.text) for o in outputs if o.output_type == "stream"]
    assert ("stdout", "one\ntwo\n") in texts
    assert ("stderr", "three\n") in texts
    assert not any("%|" in text for _, text in texts)


def test_a_live_view_is_removed_and_its_static_mount_kept():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "f00"}}
    cell = new_code_cell("player", metadata={"tags": ["a"], "collapsed": True})
    cell.outputs = [
        new_output("display_data", {**view, "text/html": "<div></div>"}),
        new_output("display_data", view),
    ]
    made = normalize(new_notebook(cells=[cell])).cells[0]
    assert [dict(o.data) for o in made.outputs] == [{"text/html": "<div></div>"}]
    assert made.id == "cell-0"
    assert dict(made.metadata) == {"tags": ["a"]}


def test_changed_prose_is_copied_and_changed_code_must_be_executed(tmp_path):
    source = tmp_path / "09_some.md"
    source.write_text(TEXT)
    assert "make notebook NAME=09_some" in copy_prose(source)
    target = source.with_suffix(".ipynb")
    nbformat.write(execute(source), target)
    before = nbformat.read(target, as_version=4)
    source.write_text(TEXT.replace("# A chapter", "# Another\n\nHere."))
    assert copy_prose(source) == "prose carried into the notebook"
    after = nbformat.read(target, as_version=4)
    assert after.cells[0].source == "# Another\n\nHere."
    assert [c.get("outputs") for c in after.cells[1:]] == [
        c.get("outputs") for c in before.cells[1:]
    ]
    source.write_text(TEXT.replace('print("one")', 'print("1")'))
    kept = target.read_bytes()
    assert "code has changed" in copy_prose(source)
    assert target.read_bytes() == kept
