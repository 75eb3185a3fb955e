"""What the record of a training run reports about the trained model.

Source: intervals by the bootstrap of Koehn (2004), section 3,
    https://aclanthology.org/W04-3250
"""

import random
from collections.abc import Sequence

import torch
from torch import nn

from attnbook.data import Pair, grammar, libreoffice
from attnbook.decoding.generation import beam_search
from attnbook.training.metrics import alignment_error_rate, bleu
from attnbook.training.tasks import (
    Task,
    compute_error_rate,
    count_errors_by_length,
    predict_links,
)

# English words of a test sentence: the shortest and the longest of each bucket.
LENGTH_BUCKETS = ((3, 9), (10, 19), (20, 29), (30, 39), (40, 50))


def score_test_set(name: str, data: Task, model: nn.Module, attention: bool) -> dict:
    if name == "libreoffice":
        return score_translation(data, model)
    results = score_sequences(data, model, data.splits.test)
    if name == "grammar":
        long = grammar.load_long()
        results["long"] = score_sequences(data, model, long)
        if attention:
            results |= score_alignment(data, model, data.splits.test)
            results["long"] |= score_alignment(data, model, long)
    return results


def score_sequences(data: Task, model: nn.Module, pairs: Sequence[Pair]) -> dict:
    decoded = [data.targets.decode(f.ids) for f in data.generate(model, pairs)]
    table = count_errors_by_length(decoded, pairs)
    return {
        "sequence_error": compute_error_rate(table),
        "symbol_error": compute_error_rate(table, of="edits"),
        "by_length": table,
    }


def score_alignment(data: Task, model: nn.Module, pairs: Sequence) -> dict:
    known = [p.sure for p in pairs], [p.possible for p in pairs]
    links = predict_links(data, model, pairs)
    return {"alignment_error": alignment_error_rate(links, *known)}


def score_translation(data: Task, model: nn.Module) -> dict:
    pairs = data.splits.test
    found = data.generate(model, pairs)
    outputs = [libreoffice.join_pieces(data.targets.decode(f.ids)) for f in found]
    wanted = [libreoffice.join_pieces(p.target) for p in pairs]
    words = [len(t.source[0].split()) for t in libreoffice.load_text().test]
    table = {}
    for low, high in LENGTH_BUCKETS:
        rows = [i for i, n in enumerate(words) if low <= n <= high]
        table[f"{low}-{high}"] = {
            "count": len(rows),
            **bootstrap_bleu([outputs[i] for i in rows], [wanted[i] for i in rows]),
        }
    some, searched = range(0, len(pairs), 5), []
    for i in some:
        source = torch.tensor(data.encode_source(pairs[i].source))
        best = beam_search(model, source, 4, 100, length_power=1.0)[0]
        searched.append(libreoffice.join_pieces(data.targets.decode(best.ids)))
    chosen = [wanted[i] for i in some]
    return {
        **bootstrap_bleu(outputs, wanted),
        "by_length": table,
        "every_fifth": {
            "greedy": bleu([outputs[i] for i in some], chosen),
            "beam_4": bleu(searched, chosen),
        },
    }


def bootstrap_bleu(
    outputs: Sequence[str], wanted: Sequence[str], draws: int = 100
) -> dict:
    """Return BLEU and the middle 95 % of it over resampled sentences."""
    rng = random.Random(0)
    scores = []
    for _ in range(draws):
        rows = rng.choices(range(len(outputs)), k=len(outputs))
        scores.append(bleu([outputs[i] for i in rows], [wanted[i] for i in rows]))
    scores.sort()
    low, high = scores[round(0.025 * draws)], scores[round(0.975 * draws) - 1]
    return {"bleu": bleu(outputs, wanted), "low": low, "high": high}
