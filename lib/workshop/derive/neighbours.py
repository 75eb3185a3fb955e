"""Find which word sets have a near twin among the others, exactly and fast.

Two sets of Jaccard similarity ≥ s must share one of their rarest words: of a
set of n words, the n - ⌈s·n⌉ + 1 rarest are enough to look at.

Source: prefix filtering, Chaudhuri, Ganti & Kaushik (2006), "A primitive
    operator for similarity joins in data cleaning", section 4.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence


def find_words(text: str) -> frozenset[str]:
    """Return a text's distinct words and numbers, in lower case."""
    return frozenset(re.findall(r"[^\W\d_]+|\d+", text.lower()))


def compute_jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the shared part of two sets: intersection over union."""
    return len(one & other) / len(one | other)


def find_nearest(sets: Sequence[frozenset[str]], similarity: float) -> list[float]:
    """Return each set's highest Jaccard with another; 0 if below `similarity`.

    Args:
        sets: word sets, none empty.
        similarity: the lowest Jaccard that counts, above 0.
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
