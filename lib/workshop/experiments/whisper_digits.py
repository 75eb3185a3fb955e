"""Whisper's cross-attention heads, scored on digits spoken at known times.

Each head is scored, ablated alone, and ablated in sets.

Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; the heads for
    word times: https://github.com/openai/whisper/pull/869
Axes: L blocks, H heads
"""

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnbook.data.spoken_digits import RATE, WORDS
from attnbook.diagnose.intervals import crop_keys
from attnbook.models.head_edits import (
    ablate_heads,
    average_outputs,
    record_heads,
)
from attnbook.models.whisper import (
    Whisper,
    keep_memory_projections,
    transcribe_greedily,
)
from attnbook.models.whisper_tiny import (
    ALIGNMENT_HEADS,
    END,
    PACKAGE,
    SHA256,
    START,
    load_whisper,
    load_whisper_tokenizer,
)
from attnbook.training.metrics import symbol_error_rate
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.spoken_attention import (
    DIGITS,
    SECONDS,
    SEQUENCES,
    Heard,
    attend_to_digits,
    correlate_ranks,
    draw_heard,
    measure_heads,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEEDS = (0, 1, 2)
CHOICE_SEED = 3  # of the digits on which the best and the worst heads are found
ABLATED, DRAWS, LIMIT = 8, 3, 16
SHOWN = ((3, 3), (2, 1), (1, 2), (3, 0))
Heads = Sequence[tuple[int, int]]


def cross_heads(heads: Heads) -> list[tuple[int, int]]:
    """Return heads as `head_edits` counts the layers of a decoder.

    In each block, self-attention comes before cross-attention.
    """
    return [(2 * layer + 1, head) for layer, head in heads]


def join_memories(heard: Sequence[Heard]) -> Float[Tensor, "B S C"]:
    """Return the encoder's states of all sequences."""
    return torch.cat([one.memory for one in heard])


@torch.no_grad()
def compute_loss(
    model: Whisper,
    heard: Sequence[Heard],
    memory: Float[Tensor, "B S C"] | None = None,
) -> float:
    """Return the mean cross-entropy of the digits (nats), teacher-forced.

    Args:
        model: in evaluation mode.
        heard: the sequences.
        memory: their joined states, if these are already there.
    """
    ids = torch.cat([one.ids for one in heard])
    memory = join_memories(heard) if memory is None else memory
    logits, _ = model.decoder(ids[:, :-1], memory)
    first = len(START)
    return float(F.cross_entropy(logits[:, first - 1 :].mT, ids[:, first:]))


def read_words(text: str) -> list[str]:
    """Return the words of a text; a digit in figures or letters is one word.

    "1, 2-three!" and "12 Three" are the words 1, 2 and 3.
    """
    spaced = "".join(
        f" {x} " if x.isdigit() else x if x.isalpha() else " " for x in text
    )
    names = {word: str(i) for i, word in enumerate(WORDS, 1)}
    return [names.get(word, word) for word in spaced.lower().split()]


def measure_word_errors(
    model: Whisper, tokenizer: "Tokenizer", heard: Sequence[Heard]
) -> float:
    """Return the word error rate of greedy transcriptions, as a share."""
    memory = join_memories(heard)
    found = transcribe_greedily(model.decoder, memory, START, END, LIMIT)
    said = [tuple(read_words(tokenizer.decode(ids))) for ids in found]
    wanted = [tuple(map(str, one.spoken.digits)) for one in heard]
    return symbol_error_rate(said, [[words] for words in wanted])


def measure_ablation(
    model: Whisper,
    tokenizer: "Tokenizer",
    draws: Sequence[Sequence[Heard]],
    heads: Heads,
) -> dict[str, list[float]]:
    """Return loss and word error rate of each draw without some heads.

    Returns:
        `loss` and `word_errors` with the heads' outputs set to zero, and
        `loss_mean`, the loss with their mean outputs over the draw instead.
    """
    gone = cross_heads(heads)
    found: dict[str, list[float]] = {
        name: [] for name in ("loss", "word_errors", "loss_mean")
    }
    for heard in draws:
        with ablate_heads(model.decoder, gone):
            found["loss"].append(compute_loss(model, heard))
            errors = measure_word_errors(model, tokenizer, heard)
            found["word_errors"].append(errors)
        with record_heads(model.decoder) as outputs:
            compute_loss(model, heard)
        with ablate_heads(model.decoder, gone, average_outputs(outputs)):
            found["loss_mean"].append(compute_loss(model, heard))
    return found


def choose_sets(scores: dict[str, Float[Tensor, "L H"]]) -> dict[str, Heads]:
    """Return sets of heads that are ablated together, by name.

    Args:
        scores: of the heads on digits that are not used elsewhere.
    """
    L, H = scores["inside"].shape
    every = [(i, h) for i, h in product(range(L), range(H))]
    unlisted = [head for head in every if head not in ALIGNMENT_HEADS]

    def choose(name: str, count: int, sign: int = -1) -> Heads:
        ranked = sorted(every, key=lambda head: sign * float(scores[name][head]))
        return sorted(ranked[:count])

    chosen: dict[str, Heads] = {
        "none": (),
        "listed heads": ALIGNMENT_HEADS,
        "8 most often on the digit": choose("inside", ABLATED),
        "8 least often on the digit": choose("inside", ABLATED, 1),
        "2 most often on the digit": choose("inside", 2),
        "2 most often on the previous digit": choose("previous", 2),
    }
    for i in range(DRAWS):
        rng = Random(i)
        drawn = sorted(rng.sample(unlisted, ABLATED))
        chosen[f"8 unlisted heads, draw {i}"] = drawn
        chosen[f"2 heads, draw {i}"] = sorted(rng.sample(every, 2))
    return chosen | {"all heads": every}


def measure_single_ablations(
    model: Whisper, draws: Sequence[Sequence[Heard]]
) -> list[Float[Tensor, "L H"]]:
    """Return the loss without each head alone, one table for each draw."""
    L, H = model.config.blocks, model.config.heads
    tables = []
    for heard in draws:
        table, memory = torch.zeros(L, H), join_memories(heard)
        with keep_memory_projections(model.decoder):
            for i, h in product(range(L), range(H)):
                with ablate_heads(model.decoder, cross_heads([(i, h)])):
                    table[i, h] = compute_loss(model, heard, memory)
        tables.append(table)
    return tables


def list_heads(measured: Sequence[dict], losses: Sequence[Tensor]) -> list[dict]:
    """Return one row for each head: its scores, one for each draw."""
    rows = []
    for i, h in torch.cartesian_prod(
        *(torch.arange(n) for n in losses[0].shape)
    ).tolist():
        row = {"layer": i, "head": h, "listed": (i, h) in ALIGNMENT_HEADS}
        for name in measured[0]["heads"]:
            found = [float(one["heads"][name][i, h]) for one in measured]
            row[name] = [round(x, DIGITS_KEPT) for x in found]
        found = [float(table[i, h]) for table in losses]
        row["loss_without"] = [round(x, DIGITS_KEPT) for x in found]
        rows.append(row)
    return rows


PREDICTORS = (
    *("entropy", "similarity", "rollout", "on_sound"),
    *("forward", "layer", "loss_without"),
)
DIGITS_KEPT = 5  # after the point, so that nearly equal scores tie


def correlate_predictors(rows: Sequence[dict]) -> dict[str, list[float]]:
    """Return each predictor's rank correlation with `inside`, over all heads.

    One number for each draw; `layer` is the number of the head's layer.
    """
    draws = range(len(rows[0]["inside"]))

    def read(name: str, i: int) -> Tensor:
        cells = [row[name] for row in rows]
        return torch.tensor([x if name == "layer" else x[i] for x in cells])

    return {
        name: [correlate_ranks(read(name, i), read("inside", i)) for i in draws]
        for name in PREDICTORS
    }


def show_example(model: Whisper, heard: Heard, heads: Heads = SHOWN) -> dict:
    """Return one sequence with the maps of some heads, in thousandths."""
    weights, _ = attend_to_digits(model, heard)
    cropped = crop_keys(weights, heard.positions)
    return {
        "digits": list(heard.spoken.digits),
        "intervals": [list(one) for one in heard.spoken.intervals],
        "seconds": len(heard.spoken.sound) / RATE,
        "maps": [
            {
                "layer": head[0],
                "head": head[1],
                "thousandths": (cropped[head] * 1000).round().int().tolist(),
            }
            for head in heads
        ],
    }


def find_digit_tokens(tokenizer: "Tokenizer") -> list[int]:
    """Return the token of each digit from 1 to 9, with the space before it."""
    tokens = []
    for digit in range(1, 10):
        (token,) = tokenizer.encode(f" {digit}", add_special_tokens=False).ids
        tokens.append(token)
    return tokens


def measure_everything(model: Whisper, tokenizer: "Tokenizer") -> dict:
    """Return the results of `whisper_digits` for a model."""
    tokens = find_digit_tokens(tokenizer)
    draws = [draw_heard(model, tokens, seed) for seed in SEEDS]
    measured = [measure_heads(model, heard) for heard in draws]
    chosen = measure_heads(model, draw_heard(model, tokens, CHOICE_SEED))
    rows = list_heads(measured, measure_single_ablations(model, draws))
    sets = choose_sets(chosen["heads"])
    return {
        "heads": rows,
        "combined": [
            {"name": name}
            | {
                score: [float(one["combined"][name][score]) for one in measured]
                for score in measured[0]["combined"][name]
            }
            for name in measured[0]["combined"]
        ],
        "sets": [
            {"name": name, "heads": [list(head) for head in heads]}
            | measure_ablation(model, tokenizer, draws, heads)
            for name, heads in sets.items()
        ],
        "correlations": correlate_predictors(rows),
        "steady": [one["steady"] for one in measured],
        "sequences": SEQUENCES,
        "digits": DIGITS,
        "seconds_per_position": SECONDS,
        "example": show_example(model, draws[0][0]),
    }


@experiment(on_cpu=True)
@recorded(
    seeds=[*SEEDS, CHOICE_SEED],
    model=f"Whisper tiny.en, float16, from {PACKAGE}, MIT",
    sha256=SHA256,
)
def whisper_digits() -> dict:
    """Record where 24 cross-attention heads look while digits are predicted."""
    return measure_everything(load_whisper(), load_whisper_tokenizer())
