"""The tables of the page "Attention across libraries", and its choice of masks.

What a library does was found by tests/oracles/libraries and is read from the
record; which masks it takes is read from the source of `attnbook.masks`, because
the build has no torch.
"""

import ast
import html
import json
from pathlib import Path

RECORD = Path("lib/attnbook/records/libraries.json")
SOURCE = Path("lib/attnbook/masks/conventions.py")
# How plain PyTorch reads a convention as booleans, and writes them in it.
READ = {
    "keep": "mask",
    "drop": "~mask",
    "additive": "mask == 0",
    "lowest": "mask == 0",
    "ones": "mask == 1",
}
WRITTEN = {
    "keep": "{}",
    "drop": "~({})",
    "additive": "torch.where({}, 0.0, -torch.inf)",
    "lowest": "torch.where({}, 0.0, torch.finfo(torch.float32).min)",
    "ones": "({}).float()",
}


def read_libraries(root: Path) -> list[tuple[str, dict[str, str]]]:
    """Return each library's name and words; an older version has it in its name."""
    groups = json.loads((root / RECORD).read_text("utf8"))
    found = {}
    for group in groups.values():
        for name, words in group["libraries"].items():
            found[words["version"] if name in found else name] = words
    return [*found.items()]


def write_versions(root: Path) -> str:
    groups = json.loads((root / RECORD).read_text("utf8")).values()
    dates = sorted({group["date"] for group in groups})
    versions = sorted({words["version"] for _, words in read_libraries(root)})
    last = f" to {dates[-1]}" if len(dates) > 1 else ""
    return f"Run on {dates[0]}{last}: {', '.join(versions)}."


def write_library_table(root: Path, keys: str) -> str:
    """Return a table of what came out, and in which libraries.

    Of several keys of the record, divided by "; ", the later ones are named
    beside the library.

    Raises:
        ValueError: if no library has such a key.
    """
    found: dict[str, list[str]] = {}
    first, *others = keys.split("; ")
    for name, words in read_libraries(root):
        if first in words:
            found.setdefault(words[first], []).append(f"`{name}`")
        for key in others:
            if key in words:
                said = f"`{name}` ({key.rpartition(', ')[2]})"
                found.setdefault(words[key], []).append(said)
    if not found:
        raise ValueError(f"no library of {RECORD} has {keys!r}")
    rows = sorted(found.items(), key=lambda row: -len(row[1]))
    lines = [f"| {word} | {', '.join(names)} |" for word, names in rows]
    return "\n".join(["| what came out | libraries |", "|---|---|", *lines])


def read_conventions(root: Path) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return CONVENTIONS and LIBRARIES of `attnbook.masks.conventions`."""
    found = {}
    for node in ast.parse((root / SOURCE).read_text("utf8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            found[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    return found["CONVENTIONS"], found["LIBRARIES"]


def write_mask_choice(root: Path) -> str:
    """Return two selects, which a script fills, and the table for all others."""
    conventions, libraries = read_conventions(root)
    data = {
        "libraries": libraries,
        "conventions": conventions,
        "read": READ,
        "written": WRITTEN,
    }
    text = html.escape(json.dumps(data, ensure_ascii=False))
    choices = "".join(
        f'<p><label for="{end}-library">{end.title()}</label> '
        f'<select id="{end}-library" autocomplete="off"></select></p>'
        for end in ("from", "to")
    )
    rows = [
        f"| `{name}` | {' or '.join(f'`{x}`' for x in taken)} |"
        for name, taken in libraries.items()
    ]
    meanings = [f"| `{name}` | {said} |" for name, said in conventions.items()]
    return "\n".join(
        [
            "```{raw} html",
            f'<form class="mask-choice" hidden data-masks="{text}">{choices}',
            '<div class="highlight"><pre role="status"></pre></div></form>',
            '<script defer src="../_static/convert_mask.js"></script>',
            "```",
            "",
            "<details>",
            "<summary>What each library takes</summary>",
            "",
            "| convention | meaning |",
            "|---|---|",
            *meanings,
            "",
            "| library | takes |",
            "|---|---|",
            *rows,
            "",
            "</details>",
        ]
    )
