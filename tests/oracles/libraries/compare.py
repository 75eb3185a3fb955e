"""Run the probes of other libraries and compare with what they gave before.

`python tests/oracles/libraries/compare.py [GROUP ...] [--write]`: each group of
libraries that fit together has a file of probes and gets an environment of its
own, .venv-oracles-GROUP. Needs nothing but Python.
"""

import argparse
import datetime
import json
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RECORD = ROOT / "lib/attnbook/records/libraries.json"
# An old version has the probes of the new one.
GROUPS = (
    *("torch", "jax", "onnx", "onnx_old"),
    *("openvino", "paddle", "mlx", "tinygrad"),
)


def find_python(group: str) -> Path:
    """Return the Python of a group's environment, made if there is none."""
    folder = ROOT / f".venv-oracles-{group}"
    python = folder / "bin/python"
    wanted = [HERE / f"{group}.txt", HERE / f"{group}.alone.txt"]
    wanted = [path for path in wanted if path.exists()]
    text = "".join(path.read_text("utf8") for path in wanted)
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text("utf8") != text:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-q"]
        for path in wanted:
            alone = ["--no-deps"] if path.stem.endswith(".alone") else []
            subprocess.run([*install, *alone, "-r", str(path)], check=True)
        stamp.write_text(text, "utf8")
    return python


def run_probes(group: str) -> dict:
    """Return what the libraries of a group do now."""
    command = [find_python(group), HERE / f"{group.removesuffix('_old')}_probes.py"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def list_differences(before: dict, now: dict) -> list[str]:
    """Return a sentence for each word that has changed."""
    found = []
    for name, words in now.items():
        known = before.get(name, {})
        for what in sorted({*known, *words} - {"version"}):
            was, is_now = known.get(what, "not known"), words.get(what, "not given")
            if was != is_now:
                found.append(
                    f"{words['version']}, {name}: {what} was {was!r} "
                    f"({known.get('version', 'no version')}), now {is_now!r}"
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--write", action="store_true", help="store what is found")
    given = parser.parse_args()
    unknown = {*given.groups} - {*GROUPS}
    if unknown:
        parser.error(f"{sorted(unknown)} are none of the groups {[*GROUPS]}")
    record = json.loads(RECORD.read_text("utf8")) if RECORD.exists() else {}
    failed = False
    for group in given.groups or GROUPS:
        now = run_probes(group)
        differences = list_differences(record.get(group, {}).get("libraries", {}), now)
        print(f"{group}: {len(now)} libraries, {len(differences)} differences")
        print("".join(f"  {line}\n" for line in differences), end="")
        failed |= bool(differences)
        if given.write:
            today = datetime.date.today().isoformat()
            record[group] = {"date": today, "libraries": now}
    if given.write:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        RECORD.write_text(text + "\n", "utf8")
    return int(failed and not given.write)


if __name__ == "__main__":
    sys.exit(main())
