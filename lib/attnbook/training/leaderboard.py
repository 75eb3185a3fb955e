"""The leaderboard: one table of the book's models, made from their records."""

from collections.abc import Sequence

from attnbook.records import list_records, read_record
from attnbook.training.tasks import compute_error_rate

# How the records of a model are named, by task.
MODELS = {
    "no attention": "fixed",
    "Bahdanau": "attention",
    "Luong": "luong",
    "hybrid": "hybrid",
    "Transformer": "transformer",
}
STEM_BY_TASK = {"grammar": "luong_general", "libreoffice": "luong_general"}
Band = tuple[int, int]
LENGTH_BANDS: tuple[Band, ...] = ((1, 5), (6, 7), (8, 9), (10, 34))


def find_records(task: str, model: str) -> list[dict]:
    """Return a model's records on a task, one a seed; none if there are none.

    Raises:
        ValueError: if the leaderboard has no such model.
    """
    if model not in MODELS:
        raise ValueError(f"no model is {model!r}; there are {[*MODELS]}")
    stem = MODELS[model]
    if stem == "luong":
        stem = STEM_BY_TASK.get(task, stem)
    known = {f"{task}_{stem}_{seed}" for seed in range(10)}
    return [read_record(n) for n in list_records(f"{task}_{stem}_") if n in known]


def find_minutes_to_error(record: dict, target: float) -> float | None:
    """Return the CPU minutes until the held-out error was `target` or less.

    None if it never was. The error is measured after each epoch.
    """
    spent = 0.0
    for epoch in record["history"]:
        spent += epoch["cpu_s"] / 60
        if epoch["valid_sequence_error"] <= target:
            return spent
    return None


def compute_mean(numbers: Sequence[float | None]) -> float | None:
    """Return the mean; None if any of the numbers is None."""
    known = [x for x in numbers if x is not None]
    return sum(known) / len(known) if len(known) == len(numbers) else None


def build_leaderboard(
    task: str = "cmudict",
    bands: Sequence[Band] = LENGTH_BANDS,
    targets: Sequence[float] = (0.40, 0.35, 0.30),
    long: bool = False,
) -> list[dict]:
    """Return one row a model: errors, parameters, time, means of the seeds.

    Args:
        task: "cmudict" or "grammar".
        bands: shortest and longest source of each group of lengths.
        targets: held-out errors; `reached` has the minutes to each, or None if
            a seed did not get there.
        long: the grammar's sentences that are longer than those trained on.
    """
    rows = []
    for model in MODELS:
        found = find_records(task, model)
        if not found:
            continue
        scored = [r["results"]["long"] if long else r["results"] for r in found]
        rows.append(
            {
                "model": model,
                "seeds": [s for r in found for s in r["seeds"]],
                "parameters": found[0]["parameters"],
                "minutes": compute_mean([r["cpu_s"] / 60 for r in found]),
                "errors": [s["sequence_error"] for s in scored],
                "error": compute_mean([s["sequence_error"] for s in scored]),
                "by_length": {
                    f"{low}-{high}": compute_mean(
                        [compute_error_rate(s["by_length"], low, high) for s in scored]
                    )
                    for low, high in bands
                },
                "reached": {
                    t: compute_mean([find_minutes_to_error(r, t) for r in found])
                    for t in targets
                },
            }
        )
    return rows
