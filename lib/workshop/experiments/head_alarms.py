"""Which alarms about heads can be trusted: sound models and broken ones.

Axes: B batch, T positions
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import causal_mask
from attnbook.data.libreoffice import encode_characters
from attnbook.diagnose import (
    measure_batch_effect,
    measure_leak,
    measure_longer_padding,
    measure_order_effect,
    measure_padding_effect,
    measure_weight_errors,
)
from attnbook.diagnose.head_alarms import (
    ALARMS,
    Numbers,
    compare_with_thresholds,
    measure_heads,
    watch_heads,
)
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.training.language_modeling import load_character_model
from attnbook.training.loop import make_batch
from attnbook.training.run import load_trained
from workshop.experiments.broken_models import (
    BUILDS,
    DECODER_FAULTS,
    HEAD_FAULTS,
    LetterModel,
    Words,
    break_heads,
    compute_loss,
    hide_letters,
    read_words,
    train_model,
)
from workshop.experiments.record import recorded
from workshop.experiments.smollm2 import (
    SMOLLM2,
    cut_passage,
    list_sections,
    load_model,
    read_lines,
)

SHORT = 6  # symbols of a decoder's inputs in tests of behavior


class Case(NamedTuple):
    """A model to be examined.

    Attributes:
        model: sound or broken.
        run: calls it and returns its output (B, T, ...).
        queries: True where a query counts.
        mask: True where a query may attend, (B, 1, T, S) or less.
        tests: the tests of behavior, by name; each returns its largest number.
        loss: of the model, in nats.
    """

    model: nn.Module
    run: Callable[[], Tensor]
    queries: Bool[Tensor, "B T"] | None
    mask: Tensor
    tests: dict[str, Callable[[], float]]
    loss: Callable[[], float]


def make_encoder_case(model: LetterModel, words: Words) -> Case:
    """Return an encoder with words, some of them as long as the batch is."""
    ids, lengths = words.ids, words.lengths
    few = ids[:8], lengths[:8]
    full = (lengths == ids.shape[1]).nonzero()[:8, 0]
    mixed = model.build.batch_first
    real = words.mark_real()

    def call(x: Tensor) -> Tensor:
        return model(x, lengths[: len(x)])

    tests = {
        "padding effect": lambda: measure_padding_effect(model, *few),
        "longer padding": lambda: measure_longer_padding(model, *few),
        "batch effect": lambda: measure_batch_effect(call, few[0]),
        "order effect": lambda: measure_order_effect(
            lambda x: model(x, lengths[full]), ids[full]
        ),
    }
    return Case(
        model,
        lambda: model(ids, lengths),
        real if mixed else None,
        real[:, None, None] if mixed else torch.tensor(True),
        {name: take_largest(test) for name, test in tests.items()},
        lambda: float(compute_loss(model, words)),
    )


def take_largest(test: Callable) -> Callable[[], float]:
    """Return a test that returns its largest number."""
    return lambda: float(torch.as_tensor(test()).amax())


def make_decoder_case(model: ModernDecoder, ids: Int[Tensor, "T"]) -> Case:
    """Return a decoder with a passage."""
    some = ids[None, :SHORT]
    pair = ids[: 2 * SHORT].view(2, SHORT)
    tests = {
        "leak": lambda: measure_leak(model, some),
        "batch effect": lambda: measure_batch_effect(model, pair),
        "order effect": lambda: measure_order_effect(model, some),
    }

    def compute_decoder_loss() -> float:
        logits = model(ids[None])[0]
        return float(F.cross_entropy(logits[:-1], ids[1:]))

    return Case(
        model,
        lambda: model(ids[None]),
        None,
        causal_mask(len(ids), len(ids), ids.device),
        {name: take_largest(test) for name, test in tests.items()},
        compute_decoder_loss,
    )


@torch.no_grad()
def measure_invalid_weights(case: Case) -> float:
    """Return the largest error of the weights of all layers.

    Weights are not valid if they are not finite, negative, on masked keys, or
    do not sum to 1.
    """
    with watch_heads(case.model) as watched:
        case.run()
    return max(
        error
        for calls in watched.values()
        for weights, _ in calls
        for error in measure_weight_errors(weights, case.mask).values()
    )


SEEDS = (0, 1, 2)
REFERENCES = (
    *(f"cmudict_heads_8_{seed}" for seed in SEEDS),
    "cmudict_transformer_0",
    "grammar_transformer_0",
)
# One head in a hundred of the reference models is beyond a threshold.
RARE = 0.01
OTHER_SEEDS = (3, 4, 5)  # of the sound encoders that define "own" thresholds
WORDS, PASSAGE, BROKEN = 256, 32, 4
EFFECT_LENGTH = 16  # symbols: each head of SmolLM2 costs one more run
CLEAR = 1e-3  # a test of behavior fails above it; rounding is far below

Head = tuple[str, int]
Limits = dict[str, dict[str, float]]  # thresholds, by where they are from


def list_numbers(numbers: Numbers) -> dict[str, list[float]]:
    """Return each number of all heads, layer by layer."""
    names = dict.fromkeys(name for table in numbers.values() for name in table)
    return {
        name: torch.cat([t[name] for t in numbers.values()]).tolist() for name in names
    }


def measure_speller(name: str) -> Numbers:
    """Return the numbers of a recorded run's heads, on words of one length."""
    model, data, _ = load_trained(name)
    pairs = [
        pair
        for pair in data.encode(data.splits.test)
        if (len(pair[0]), len(pair[1])) == (8, 7)
    ]
    batch = make_batch(pairs[:WORDS])[:3]
    return measure_heads(model, lambda: model(*batch).logits)


def measure_references() -> Iterator[dict]:
    """Yield the numbers of the heads of the book's trained models."""
    for name in REFERENCES:
        yield {"model": name} | list_numbers(measure_speller(name))
    model = load_character_model()
    ids = encode_characters("test")[0][: 8 * PASSAGE].view(8, PASSAGE)
    numbers = measure_heads(model, lambda: model(ids))
    yield {"model": "language_model"} | list_numbers(numbers)


def derive_thresholds(rows: Sequence[dict]) -> dict[str, float]:
    """Return the thresholds, to three significant digits.

    They are quantiles, so that one of a hundred heads is beyond each of them.
    Alarms whose number was not measured have none.
    """
    found = {}
    for alarm, (name, large) in ALARMS.items():
        if name not in rows[0]:
            continue
        values = torch.tensor([x for row in rows for x in row[name]])
        share = 1 - RARE if large else RARE
        found[alarm] = float(f"{values.nanquantile(share):.3g}")
    return found


def count_alarms(
    numbers: Numbers, broken: set[Head], limits: Limits
) -> dict[str, dict[str, list[int]]]:
    """Return how many broken and how many other heads raise each alarm, or any."""
    counts: dict[str, dict[str, list[int]]] = {}
    for source, thresholds in limits.items():
        raised: dict[str, set[Head]] = {alarm: set() for alarm in thresholds}
        for found in compare_with_thresholds(numbers, thresholds):
            raised[found.alarm].add((found.layer, found.head))
        raised["any"] = set[Head]().union(*raised.values())
        counts[source] = {
            alarm: [len(some & broken), len(some - broken)]
            for alarm, some in raised.items()
        }
    return counts


def examine(
    case: Case,
    limits: Limits,
    affected: Sequence[Head] | None = None,
    effects: bool = True,
    behavior: bool = True,
) -> dict:
    """Return the alarms of a case, its loss, and what the tests say.

    Args:
        case: a model with its inputs.
        limits: the thresholds.
        affected: the heads with a fault; None if all have it.
        effects: whether each head is removed in turn.
        behavior: whether the tests of behavior are run.
    """
    numbers = measure_heads(case.model, case.run, case.queries, effects)
    heads = list_heads(numbers)
    broken = set(heads if affected is None else affected)
    found = {
        "affected": len(broken),
        "others": len(heads) - len(broken),
        "raised": count_alarms(numbers, broken, limits),
    }
    with torch.no_grad():
        found["loss"] = case.loss()
    if behavior:
        found["invalid weights"] = measure_invalid_weights(case)
        found["behavior"] = {name: test() for name, test in case.tests.items()}
    return found


def list_heads(numbers: Numbers) -> list[Head]:
    """Return all heads of a model, each as its layer's name and number."""
    return [
        (layer, head)
        for layer, table in numbers.items()
        for head in range(len(table["entropy"]))
    ]


def add_counts(rows: Sequence[dict]) -> dict:
    """Return the sums of counts, and the mean loss, of several cases."""
    return {
        "affected": sum(row["affected"] for row in rows),
        "others": sum(row["others"] for row in rows),
        "raised": {
            source: {
                alarm: [
                    sum(row["raised"][source][alarm][i] for row in rows)
                    for i in range(2)
                ]
                for alarm in counts
            }
            for source, counts in rows[0]["raised"].items()
        },
        "loss": sum(row["loss"] for row in rows) / len(rows),
    }


def examine_encoders(limits: Limits) -> Iterator[dict]:
    """Yield what is found about PyTorch's encoder, sound and broken."""
    words = draw_words()
    for seed in SEEDS:
        for name, build in BUILDS.items():
            model = train_model(build, seed)
            case = make_encoder_case(model, words)
            affected = [] if name == "sound" else None
            row = examine(case, limits, affected)
            yield {"model": "encoder", "fault": name, "seed": seed} | row
            if name != "sound":
                continue
            heads = list_heads(measure_heads(model, case.run, effects=False))
            for fault in HEAD_FAULTS:
                row = break_each(case, heads, fault, seed, limits)
                yield {"model": "encoder", "fault": fault, "seed": seed} | row


def draw_words() -> Words:
    """Return held-out words, each with a letter missing."""
    rng = torch.Generator().manual_seed(100)
    return hide_letters(read_words("valid"), WORDS, rng)


def measure_sound_encoders() -> Iterator[dict]:
    """Yield the numbers of sound encoders of other seeds."""
    words = draw_words()
    for seed in OTHER_SEEDS:
        model = train_model(BUILDS["sound"], seed)
        case = make_encoder_case(model, words)
        numbers = measure_heads(model, case.run, case.queries)
        yield {"model": f"encoder {seed}"} | list_numbers(numbers)


def break_each(
    case: Case, heads: Sequence[Head], fault: str, seed: int, limits: Limits
) -> dict:
    """Return the sums over models with a fault in one head, each head once."""
    rows = []
    for head in heads:
        with break_heads(case.model, [head], fault, seed) as affected:
            behavior = head == heads[0]
            rows.append(examine(case, limits, affected, behavior=behavior))
    tests = {k: rows[0][k] for k in ("invalid weights", "behavior")}
    return {"scope": "head"} | add_counts(rows) | tests


def measure_decoder(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> dict[str, list[float]]:
    """Return the numbers of a sound decoder's heads.

    The effect of each head is that on the beginning of the passage.
    """
    whole, short = ids[None], ids[None, :EFFECT_LENGTH]
    found = measure_heads(model, lambda: model(whole), effects=False)
    effects = list_numbers(measure_heads(model, lambda: model(short)))
    return list_numbers(found) | {"effect": effects["effect"]}


def examine_decoder(
    model: ModernDecoder, passages: Sequence[Int[Tensor, "T"]], limits: Limits
) -> Iterator[dict]:
    """Yield what is found about SmolLM2, sound and broken.

    Only the "no effect" alarm is not tried with faults: it costs one run for
    each head. `BROKEN` heads, each in a layer of its own, have a fault at once.
    """
    cheap = {
        source: {k: v for k, v in thresholds.items() if k != "no effect"}
        for source, thresholds in limits.items()
    }
    for seed, ids in enumerate(passages):
        case = make_decoder_case(model, ids)
        row = examine(case, cheap, [], effects=False)
        yield {"model": "SmolLM2", "fault": "sound", "seed": seed} | row
        for name, fault in DECODER_FAULTS.items():
            with fault(model):
                row = examine(case, cheap, effects=False)
            yield {"model": "SmolLM2", "fault": name, "seed": seed} | row
        for name in HEAD_FAULTS:
            heads = draw_heads(model, seed)
            with break_heads(model, heads, name, seed) as affected:
                row = examine(case, cheap, affected, effects=False, behavior=seed == 0)
            row["scope"] = "head"
            yield {"model": "SmolLM2", "fault": name, "seed": seed} | row


def draw_heads(model: ModernDecoder, seed: int) -> list[Head]:
    """Return some heads, each in a layer of its own, drawn by a seed."""
    rng = torch.Generator().manual_seed(seed)
    layers = torch.randperm(len(model.blocks), generator=rng)[:BROKEN]
    heads = torch.randint(model.config.heads, (BROKEN,), generator=rng)
    return [
        (f"blocks.{layer}.attention", head)
        for layer, head in zip(layers.tolist(), heads.tolist(), strict=True)
    ]


@recorded(on_cpu=True, seeds=SEEDS, **SMOLLM2)
def head_alarms() -> dict:
    """Record what each alarm reports about sound and about broken models.

    The alarms are tried on PyTorch's encoder (three seeds) and SmolLM2-135M (three
    passages), sound and with faults. The thresholds are quantiles over the heads of
    other models, namely the book's trained ones ("book"), or of the same model when
    it is sound, on other seeds or another passage ("own"). Tests of behavior and of
    invalid weights are run on the same models.
    """
    references = list(measure_references())
    book = derive_thresholds(references)
    encoders = list(measure_sound_encoders())
    own = derive_thresholds(encoders)
    rows = list(examine_encoders({"book": book, "own": own}))
    model, tokenizer = load_model()
    lines = read_lines()
    first, *passages = (
        cut_passage(tokenizer, lines, start, PASSAGE)
        for start in list_sections(len(lines), 1 + len(SEEDS))
    )
    smollm2 = measure_decoder(model, first)
    limits = {"book": book, "own": derive_thresholds([smollm2])}
    rows += examine_decoder(model, passages, limits)
    return {
        "thresholds": {"book": book, "encoder": own, "SmolLM2": limits["own"]},
        "references": references,
        "encoders": encoders,
        "smollm2": smollm2,
        "rows": rows,
        "clear": CLEAR,
    }
