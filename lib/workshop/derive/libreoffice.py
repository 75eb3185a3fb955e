"""Derive files/libreoffice from LibreOffice's help in English and French.

Run it with, on Debian 12,
    apt-get download libreoffice-help-en-us libreoffice-help-fr
    for package in *.deb; do dpkg -x "$package" .; done
    python -m workshop.derive.libreoffice usr/share/libreoffice/help

Source: files/libreoffice/README.md; subwords by Sennrich et al. (2016),
    section 3.2, https://arxiv.org/abs/1508.07909
"""

import hashlib
import io
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import sentencepiece

from workshop.derive import FILES, write, write_sums

Text = tuple[str, str]

VOID = {"base", "br", "col", "hr", "img", "input", "link", "meta"}
BLOCK = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
PIECES = 3_000  # in each language
SIMILAR = 0.6
# How many English lengths (first, last) go to validation and to test.
QUOTAS = {
    (3, 9): (110, 225),
    (10, 19): (110, 225),
    (20, 29): (110, 225),
    (30, 39): (110, 225),
    (40, 50): (60, 100),
}
# Curly quotes, long dashes, the minus sign, and the three dots in one.
PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
        **dict.fromkeys("\u2011\u2013\u2014\u2212", "-"),
        "\u2026": "...",
        "\xad": "",
    }
)
LETTER = "[a-zA-ZàâäçéèêëîïôöùûüÿœæÀÂÄÇÉÈÊËÎÏÔÖÙÛÜŒÆ]"
ALLOWED = re.compile(rf"(?:{LETTER}|[0-9 .,;:!?'\"()%/&+*#$°-])+")
NUMBER = re.compile(r"\d+")
START = re.compile(rf'["(]?{LETTER}')
END = re.compile(r"[.:!?][\"')]?$")
GLUED = re.compile(rf"{LETTER}[.!?:][A-Z]")  # two paragraphs run together


class Paragraphs(HTMLParser):
    """Collects the text of every paragraph that has an `id` of the help.

    A page holds a wording per operating system, all marked hidden; we keep
    the one whose `id` starts with "default".
    """

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self._open: list[tuple[str, str | None, bool]] = []

    def handle_starttag(self, tag, attrs):
        if tag in VOID:
            self.handle_data(" ")
            return
        attributes = dict(attrs)
        name = attributes.get("id") or ""
        _, paragraph, shown = self._open[-1] if self._open else ("", None, True)
        if "hidden" in attributes and not name.startswith("default"):
            shown = False
        if tag in BLOCK and name.startswith(("par_", "hd_")):
            paragraph = name
        self._open.append((tag, paragraph, shown))

    def handle_endtag(self, tag):
        """Leave an element, and all that were left open inside it."""
        if any(tag == opened for opened, _, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data):
        _, paragraph, shown = self._open[-1] if self._open else ("", None, True)
        if paragraph and shown:
            self.texts[paragraph] = self.texts.get(paragraph, "") + data


def read_paragraphs(page: str) -> dict[str, str]:
    parser = Paragraphs()
    parser.feed(page)
    parser.close()
    return parser.texts


def pair_paragraphs(english: Path, french: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(english.rglob("*.html")):
        twin = french / path.relative_to(english)
        if twin.exists():
            ours = read_paragraphs(path.read_text("utf-8"))
            theirs = read_paragraphs(twin.read_text("utf-8"))
            for name in (name for name in ours if name in theirs):
                yield ours[name], theirs[name]


def normalize(text: str) -> str:
    """Return the text with plain quotes and dashes, and single spaces."""
    text = text.translate(PLAIN)
    text = re.sub(r"«\s*|\s*»", '"', text)
    text = " ".join(text.split())
    return re.sub(r"(?<=\w) (?=[.,)](?:\s|$))", "", text)


def find_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d_]+|\d+", text.lower()))


def compute_jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other)


def find_nearest(sets: Sequence[frozenset[str]], similarity: float) -> list[float]:
    """Return each set's highest Jaccard with another; 0 if below `similarity`.

    Two sets of Jaccard similarity ≥ s must share one of their rarest words: of a
    set of n words, the n - ⌈s·n⌉ + 1 rarest are enough to look at.

    Source: prefix filtering, Chaudhuri, Ganti & Kaushik (2006), "A primitive
        operator for similarity joins in data cleaning", section 4.
    """
    frequency = Counter(word for one in sets for word in one)
    # From each rare word to the earlier sets that hold it.
    holders: defaultdict[str, list[int]] = defaultdict(list)
    best = [0.0] * len(sets)
    for index, one in enumerate(sets):
        rarest = sorted(one, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(one) - math.ceil(similarity * len(one)) + 1]
        for other in {i for word in prefix for i in holders[word]}:
            found = compute_jaccard(one, sets[other])
            if found >= similarity:
                best[index] = max(best[index], found)
                best[other] = max(best[other], found)
        for word in prefix:
            holders[word].append(index)
    return best


# Why a pair is left out; the first that holds, in this order.
FAULTS: dict[str, Callable[[str, str], bool]] = {
    "not 3 to 50 words": lambda english, french: (
        not (3 <= len(english.split()) <= 50 and 3 <= len(french.split()) <= 50)
    ),
    "same in both": lambda english, french: english == french,
    "code or other scripts": lambda english, french: (
        not (ALLOWED.fullmatch(english) and ALLOWED.fullmatch(french))
    ),
    "does not start with a letter": lambda english, french: (
        not (START.match(english) and START.match(french))
    ),
    "no sentence end": lambda english, french: not END.search(english),
    "run together": lambda english, french: bool(
        GLUED.search(english) or GLUED.search(french)
    ),
    "one twice as long": lambda english, french: (
        not (
            0.5 <= len(french.split()) / len(english.split()) <= 2
            and 0.5 <= len(french) / len(english) <= 2
        )
    ),
    "less than 85 % letters": lambda english, french: (
        sum(c.isalpha() or c == " " for c in english) < 0.85 * len(english)
    ),
    "numbers differ": lambda english, french: (
        sorted(NUMBER.findall(english)) != sorted(NUMBER.findall(french))
    ),
    "not translated": lambda english, french: (
        compute_jaccard(find_words(english), find_words(french)) > 0.5
    ),
}


def keep_unique(pairs: Iterable[Text], counts: Counter[Text]) -> Iterator[Text]:
    """Keep one pair per English and per French text: the most frequent."""
    ranked = sorted(pairs, key=lambda pair: (-counts[pair], pair))
    english, french = set(), set()
    for pair in ranked:
        if pair[0] not in english and pair[1] not in french:
            english.add(pair[0])
            french.add(pair[1])
            yield pair


def split_pairs(pairs: list[Text]) -> dict[str, list[Text]]:
    """Draw validation and test from pairs without a near twin anywhere.

    The draw is by SHA-256 of the English text: the same on every machine.
    """
    twins = zip(
        find_nearest([find_words(english) for english, _ in pairs], SIMILAR),
        find_nearest([find_words(french) for _, french in pairs], SIMILAR),
        strict=True,
    )
    alone = [pair for pair, t in zip(pairs, twins, strict=True) if not any(t)]
    print(f"{len(alone)} of {len(pairs)} have no twin of {SIMILAR} or more")
    alone.sort(key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
    valid, test = set(), set()
    for (first, last), (few, more) in QUOTAS.items():
        fit = [p for p in alone if first <= len(p[0].split()) <= last]
        valid.update(fit[:few])
        test.update(fit[few : few + more])
    return {
        "train": [p for p in pairs if p not in valid | test],
        "valid": [p for p in pairs if p in valid],
        "test": [p for p in pairs if p in test],
    }


def train_subwords(sentences: Iterable[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        vocab_size=PIECES,
        character_coverage=1.0,
        normalization_rule_name="identity",
        num_threads=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def main(folder: str) -> None:
    texts = pair_paragraphs(Path(folder, "en-US/text"), Path(folder, "fr/text"))
    counts = Counter(
        (normalize(english), normalize(french)) for english, french in texts
    )
    print(f"{counts.total()} paragraphs, {len(counts)} distinct")
    faults = {
        pair: next((name for name, has in FAULTS.items() if has(*pair)), "kept")
        for pair in counts
    }
    print(Counter(faults.values()))
    kept = keep_unique((p for p in counts if faults[p] == "kept"), counts)
    order = {pair: place for place, pair in enumerate(counts)}
    splits = split_pairs(sorted(kept, key=order.__getitem__))
    for name, pairs in splits.items():
        ending = "tsv.bz2" if name == "train" else "tsv"
        write(f"libreoffice/{name}.{ending}", ["\t".join(p) for p in pairs])
        print(f"{name}: {len(pairs)}")
    for side, language in enumerate(("en", "fr")):
        model = train_subwords(pair[side] for pair in splits["train"])
        (FILES / f"libreoffice/{language}.model").write_bytes(model)
    write_sums()


if __name__ == "__main__":
    main(sys.argv[1])
