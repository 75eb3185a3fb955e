"""Derive files/grammar: freeze what the book's English-French grammar generated.

The generator (1,400 lines: lexicon, agreement, conjugation, clauses) is no part
of the package any more; the history of this repository holds it. Run this in a
clone that has its history, with
    python -m workshop.derive.grammar

Source: written for this book, lib/attnbook/data/grammar in the commit below.
"""

import io
import subprocess
import sys
import tarfile
import tempfile

from workshop.derive import write, write_sums

COMMIT = "151959ef373143b41e6384d4d64e0195e7a7a5e5"
# Prints a line a sentence: its set, English, French, and links from 0, "-"
# where a link is sure and "?" where it is possible.
PRINT = """
from attnbook.data import grammar
from attnbook.data.grammar import examples

load = grammar.load()
sets = {
    "train": load.train,
    "valid": load.valid,
    "test": load.test,
    "long": grammar.load_long(),
    "up to 8": grammar.sample_pairs(6_600, seed=7, longest=8),
    "up to 10": grammar.sample_pairs(20_600, seed=7, longest=10),
    "car": [grammar.align_words(examples.build_car_example())],
    "tired": [grammar.align_words(examples.build_animal_example("tired"))],
    "wide": [grammar.align_words(examples.build_animal_example("wide"))],
}
for name, pairs in sets.items():
    for pair in pairs:
        links = (
            f"{row}{'-' if (row, column) in pair.sure else '?'}{column}"
            for row, column in sorted(pair.sure | pair.possible)
        )
        parts = name, *map(" ".join, (pair.source, pair.target, links))
        print(*parts, sep="\\t")
"""


def main() -> None:
    packed = subprocess.run(
        ["git", "archive", COMMIT, "lib/attnbook"], capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        printed = subprocess.run(
            [sys.executable, "-c", PRINT],
            capture_output=True,
            check=True,
            text=True,
            env={"PYTHONPATH": f"{folder}/lib", "PYTHONUTF8": "1"},
        )
    write("grammar/sentences.tsv.bz2", printed.stdout.splitlines())
    write_sums()


if __name__ == "__main__":
    main()
