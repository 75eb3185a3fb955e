"""Decoding with SmolLM2: speed, fewer bits, speculation, eviction; and MLA's two forms.

Times of different decoders take turns, in a new order each round: what else the machine
does then slows all of them alike. "times" are ratios within a round. transformers is
measured where it is installed.

Axes: B sequences, T symbols, V symbols of the vocabulary, H heads
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.decoding.caches import (
    Cache,
    CacheSizes,
    KVCache,
    QuantizedCache,
    dequantize,
    quantize,
)
from attnbook.decoding.decoder import CachedDecoder
from attnbook.decoding.fast import PackedDecoder
from attnbook.decoding.generation import generate, prefill
from attnbook.decoding.latent import LatentSizes, attend_absorbed, attend_naive
from attnbook.decoding.speculation import DraftModel, PromptLookup, speculate
from attnbook.models.devices import use_seed
from attnbook.models.modern_decoder import (
    CachedLanguageModel,
    ModernDecoder,
    RotaryAttention,
)
from attnbook.models.pretrained import WEIGHTS
from attnbook.profiling.timing import time_calls
from workshop.experiments.record import average_rows, recorded
from workshop.experiments.smollm2 import SMOLLM2, cut_passages, load_model

Ids = Int[Tensor, "B T"]
# Symbols, and the seconds that one of them took.
Timed = tuple[list[list[int]] | None, float]
Run = Callable[[], Timed]


def make_cache(decoder: CachedDecoder, length: int, sequences: int = 1) -> KVCache:
    return KVCache(CacheSizes.of(decoder.model), sequences, length)


def list_quartiles(values: Iterable[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive")


def take_turns(runs: dict[str, Run], rounds: int, base: str) -> list[dict]:
    """Return each run's ms a symbol, and how many times as fast as `base` it is."""
    rng, taken = random.Random(0), {name: [] for name in runs}
    for _ in range(rounds):
        for name in rng.sample(list(runs), len(runs)):
            taken[name].append(1000 * runs[name]()[1])
    return [
        {
            "name": name,
            "ms": list_quartiles(ms),
            "times": list_quartiles(
                b / x for b, x in zip(taken[base], ms, strict=True)
            ),
        }
        for name, ms in taken.items()
    ]


@torch.no_grad()
def time_loop(
    logits: Float[Tensor, "B V"], step: Callable[[Tensor], Tensor], count: int
) -> Timed:
    """Return greedy symbols, and the seconds of one, the first not counted."""
    found = [logits.argmax(-1)]
    begun = time.perf_counter()
    for _ in range(count - 1):
        found.append(step(found[-1][:, None]).argmax(-1))
    seconds = (time.perf_counter() - begun) / (count - 1) / len(logits)
    return torch.stack(found, dim=1).tolist(), seconds


def time_steps(
    decoder: CachedDecoder, ids: Ids, count: int, mask: Tensor | None = None
) -> Timed:
    cache = make_cache(decoder, ids.shape[1] + count, len(ids))
    logits = prefill(decoder, ids, cache, mask)
    return time_loop(
        logits, lambda new: decoder.predict(decoder.run(new, cache)[:, -1]), count
    )


@torch.no_grad()
def time_chapter_9(model: CachedLanguageModel, ids: Ids, count: int) -> Timed:
    logits, caches = model.decode(ids)

    def step(new: Tensor) -> Tensor:
        nonlocal caches
        logits, caches = model.decode(new, caches)
        return logits[:, -1]

    return time_loop(logits[:, -1], step, count)


class TimedLookup(PromptLookup):
    """A prompt lookup that remembers when it was first asked: after the prefill."""

    begun = 0.0

    def propose(self, *args):
        self.begun = self.begun or time.perf_counter()
        return super().propose(*args)


def time_lookup(decoder: CachedDecoder, ids: Ids, count: int) -> Timed:
    cache, draft = make_cache(decoder, ids.shape[1] + count), TimedLookup()
    found = speculate(decoder, ids, count, cache, draft).ids
    return [found], (time.perf_counter() - draft.begun) / (count - 1)


def load_theirs():
    """Return transformers' Llama with the same weights, as it is by default."""
    from transformers import LlamaForCausalLM

    folder, name = WEIGHTS.find().parent, WEIGHTS.find().name
    theirs = LlamaForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32
    )
    return theirs.eval()


class Clock:
    """A streamer of transformers: notes symbols and when each one came."""

    def __init__(self):
        self.ids, self.seconds = [], []

    def put(self, ids: Tensor) -> None:
        self.ids += ids.flatten().tolist()
        self.seconds.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing: a streamer needs this method."""


def time_theirs(theirs, ids: Ids, count: int) -> Timed:
    clock, greedy = Clock(), {"do_sample": False, "eos_token_id": None}
    theirs.generate(ids, max_new_tokens=count, streamer=clock, pad_token_id=0, **greedy)
    first, last = clock.seconds[1], clock.seconds[-1]  # [0] is the prompt
    return [clock.ids[ids.shape[1] :]], (last - first) / (count - 1)


PROMPT, COUNT, BATCH, SPEED_ROUNDS = 64, 32, 8, 7
SHORTER = (0, 14, 23, 0, 31, 7, 44, 4)  # how much shorter each prompt of a batch is
REPEATED, COPIED = 48, 64  # symbols of a repeated passage, and generated from it
MEGABYTES = 256  # about so many, of the matrix that measures how fast memory is read


def make_limit(model: ModernDecoder, positions: float) -> Run:
    """Return a run that takes as long as reading all weights and a cache once."""
    step = sum(x.nbytes for x in model.parameters())
    step += positions * CacheSizes.of(model).bytes_per_token
    matrix, vector = torch.ones(MEGABYTES * 160, 1536), torch.ones(1536)

    def run() -> Timed:
        begun = time.perf_counter()
        torch.mv(matrix, vector)
        return None, (time.perf_counter() - begun) * step / matrix.nbytes

    return run


def draw_batch(passages: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return ragged prompts with padding on the left, and their mask."""
    ids = torch.stack([x[:PROMPT] for x in passages])
    real = torch.arange(PROMPT) >= torch.tensor(SHORTER)[:, None]
    return ids * real, real


def list_speed_runs(model: ModernDecoder, theirs, passages) -> dict[str, Run]:
    one, (ragged, real) = passages[0][None, :PROMPT], draw_batch(passages)
    repeated = passages[1][:REPEATED].repeat(3)[None, : -REPEATED // 2]
    packed = {
        f"packed, {str(x).removeprefix('torch.')}": PackedDecoder(model, x)
        for x in (torch.float32, torch.bfloat16, torch.int8)
    }
    fast = packed["packed, float32"]
    runs: dict[str, Run] = {"limit": make_limit(model, PROMPT + COUNT / 2)}
    if theirs is not None:
        runs["transformers"] = partial(time_theirs, theirs, one, COUNT)
    return runs | {
        "chapter 9": partial(time_chapter_9, model, one, COUNT),
        "cached": partial(time_steps, CachedDecoder(model), one, COUNT),
        **{n: partial(time_steps, x, one, COUNT) for n, x in packed.items()},
        "packed, batch": partial(time_steps, fast, ragged, COUNT, real),
        "repeated": partial(time_steps, fast, repeated, COPIED),
        "repeated, lookup": partial(time_lookup, fast, repeated, COPIED),
    }


def measure_exactness(model: ModernDecoder, passages) -> dict[str, bool]:
    """Return, in float64, whether a batch and a lookup generate what one step does."""
    decoder, (ids, real) = CachedDecoder(model.double()), draw_batch(passages)

    def continue_alone(prompt: Ids) -> list[int]:
        room = make_cache(decoder, 2 * PROMPT + COUNT)
        return generate(decoder, prompt, COUNT, room)[0]

    room = make_cache(decoder, PROMPT + COUNT, BATCH)
    together = generate(decoder, ids, COUNT, room, mask=real)
    alone = [continue_alone(x[m][None]) for x, m in zip(ids, real, strict=True)]
    repeated, room = ids[:1].repeat(1, 2), make_cache(decoder, 2 * PROMPT + COUNT)
    looked = speculate(decoder, repeated, COUNT, room, PromptLookup()).ids
    return {"batch": together == alone, "lookup": looked == continue_alone(repeated)}


def compare_logits(
    found: Float[Tensor, "T V"], exact: Float[Tensor, "T V"]
) -> dict[str, float]:
    """Return KL(exact ‖ found) a position, and how often the first symbol agrees."""
    log_p, log_q = (x.double().log_softmax(-1) for x in (exact, found))
    each = (log_p.exp() * (log_p - log_q)).sum(-1)
    same = (found.argmax(-1) == exact.argmax(-1)).double()
    return {"kl": float(each.mean()), "same_first": float(same.mean())}


CHUNK, PASSAGES, LENGTH = 16, 3, 512


@torch.no_grad()
def read_logits(
    decoder: CachedDecoder, ids: Int[Tensor, "T"], cache: Cache
) -> Float[Tensor, "_ V"]:
    """Return the logits of a passage's second half, read in chunks."""
    parts = [decoder(x[None], cache)[0] for x in ids.split(CHUNK)]
    return torch.cat(parts)[len(ids) // 2 :]


def compare_decoders(
    passages, exact: CachedDecoder, found: CachedDecoder, make: Callable[[int], Cache]
) -> dict:
    """Return `compare_logits` of two decoders, averaged over passages."""
    rows = [
        compare_logits(
            read_logits(found, ids, make(len(ids))),
            read_logits(exact, ids, make_cache(exact, len(ids))),
        )
        for ids in passages
    ]
    return average_rows(rows)


@recorded(seeds=[0], prompt=PROMPT, count=COUNT, batch=BATCH, **SMOLLM2)
def decoding_speed() -> dict:
    """Record ms a symbol of every decoder, on 1 and 2 threads; what fewer bits cost.

    Ratios are to transformers where it is installed, and else to chapter 9's decoder.
    """
    model, tokenizer = load_model()
    passages = cut_passages(tokenizer, BATCH, PROMPT)
    has_theirs = find_spec("transformers") is not None
    runs = list_speed_runs(model, load_theirs() if has_theirs else None, passages)
    base = "transformers" if has_theirs else "chapter 9"
    found = {name: run()[0] for name, run in runs.items()}
    expected = found["packed, float32"][0]
    same = {name: x[0] == expected for name, x in found.items() if x}
    times = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times[str(threads)] = take_turns(runs, SPEED_ROUNDS, base)
    torch.set_num_threads(1)
    tested, exact = cut_passages(tokenizer, PASSAGES, LENGTH), CachedDecoder(model)
    kl = {
        str(dtype).removeprefix("torch."): compare_decoders(
            tested, exact, PackedDecoder(model, dtype), partial(make_cache, exact)
        )
        for dtype in (torch.bfloat16, torch.int8)
    }
    exactness = measure_exactness(model, passages)
    return {"same": same, "threads": times, "kl": kl, "float64": exactness}


BITS, GROUP, RESIDUAL = (8, 4, 2), 32, 32


class KeysPerPosition(KVCache):
    """A cache whose keys are quantized like values: a scale for each position."""

    def __init__(self, sizes, sequences, capacity, bits, group, residual):
        super().__init__(sizes, sequences, capacity)
        self.bits, self.group, self.residual = bits, group, residual

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return exact values; keys that are older than the pass from their codes."""
        keys, values = super().update(layer, key, value)
        past = keys.shape[2] - key.shape[2]
        old = keys[:, :, : max(0, past - self.residual)].unflatten(-1, (-1, self.group))
        old = dequantize(*quantize(old, self.bits)).flatten(-2)
        return torch.cat([old, keys[:, :, old.shape[2] :]], dim=2), values


@recorded(seeds=[0], chunk=CHUNK, group=GROUP, residual=RESIDUAL, **SMOLLM2)
def decoding_quantized_cache() -> dict:
    """Record the KL divergence that fewer bits in the cache cost, on real text."""
    model, tokenizer = load_model()
    passages, sizes = cut_passages(tokenizer, PASSAGES, LENGTH), CacheSizes.of(model)
    decoder = CachedDecoder(model)
    exact = KVCache(sizes, 1, LENGTH).count_bytes()
    kinds = {
        "keys a channel, values a position": QuantizedCache,
        "only keys, a position": KeysPerPosition,
    }
    rows = []
    for bits, (name, kind) in product(BITS, kinds.items()):

        def make(length: int, bits=bits, kind=kind) -> Cache:
            return kind(sizes, 1, length, bits, GROUP, RESIDUAL)

        row = {"bits": bits, "name": name}
        if kind is QuantizedCache:
            row["bytes"] = make(LENGTH).count_bytes() / exact
        rows.append(row | compare_decoders(passages, decoder, decoder, make))
    return {"rows": rows}


DRAFT_COUNTS = (1, 4, 8)
DRAFT_BLOCKS = 20  # of the draft that is the model's first blocks
PROMPTS = 2


def measure_speculation(decoder: CachedDecoder, make_draft, prompts) -> dict:
    """Return accepted symbols and symbols a pass, and the speed against plain steps."""
    times, found, same = [], [], True
    for ids in prompts:
        length = ids.shape[1] + COPIED
        begun = time.perf_counter()
        [plain] = generate(decoder, ids, COPIED, make_cache(decoder, length))
        between = time.perf_counter()
        room = make_cache(decoder, length)
        found.append(speculate(decoder, ids, COPIED, room, make_draft(length)))
        times.append((between - begun) / (time.perf_counter() - between))
        same = same and found[-1].ids == plain
    accepted = sum(x.accepted for x in found)
    return {
        "acceptance": accepted / max(1, sum(x.proposed for x in found)),
        "symbols_a_pass": 1 + accepted / sum(x.passes for x in found),
        "times": statistics.median(times),
        "same": same,
    }


@recorded(seeds=[0], count=COPIED, draft_blocks=DRAFT_BLOCKS, **SMOLLM2)
def decoding_speculation() -> dict:
    """Record acceptance against speed, for two texts and three drafts.

    Times are prefill and decoding together, against greedy steps.
    """
    model, tokenizer = load_model()
    decoder = PackedDecoder(model)
    early = CachedLanguageModel(model.embed, [*model.blocks][:DRAFT_BLOCKS], model.norm)
    ordinary = [x[None] for x in cut_passages(tokenizer, PROMPTS, PROMPT)]
    cut = -REPEATED // 2
    texts = {
        "ordinary": ordinary,
        "repeated": [x[:, :REPEATED].repeat(1, 3)[:, :cut] for x in ordinary],
    }

    def make_draft(small: CachedDecoder | None, count: int, length: int):
        if small is None:
            return PromptLookup(3, count)
        return DraftModel(small, make_cache(small, length + count), count)

    drafts = {
        "lookup": None,
        "int8": PackedDecoder(model, torch.int8),
        "first blocks": PackedDecoder(early),
    }
    rows = []
    for text, draft, count in product(texts, drafts, DRAFT_COUNTS):
        make = partial(make_draft, drafts[draft], count)
        row = {"text": text, "draft": draft, "count": count}
        rows.append(row | measure_speculation(decoder, make, texts[text]))
    return {"rows": rows}


KEPT, SINKS = 128, (0, 1, 4)


class EvictingAttention(RotaryAttention):
    """Rotary attention whose positions count the keys that the cache has dropped."""

    dropped = 0

    def project(self, query: Tensor, memory: Tensor, start: int = 0):
        return super().project(query, memory, start + self.dropped)


@torch.no_grad()
def read_evicting(
    model: ModernDecoder, ids: Int[Tensor, "T"], sinks: int, counted: bool
) -> Float[Tensor, "_ V"]:
    """Return logits of the second half; keys are dropped after each chunk.

    With `counted`, positions go on; else they are those of the rows of the cache.
    """
    parts, caches, dropped = [], None, 0
    for chunk in ids.split(CHUNK):
        for block in model.blocks:
            block.attention.dropped = dropped if counted else 0
        logits, caches = model.decode(chunk[None], caches)
        parts.append(logits[0])
        extra = max(0, caches[0][0].shape[2] - KEPT - sinks)
        if extra:
            rows = torch.arange(caches[0][0].shape[2])
            rows = torch.cat([rows[:sinks], rows[sinks + extra :]])
            caches = [(key[:, :, rows], value[:, :, rows]) for key, value in caches]
        dropped += extra
    return torch.cat(parts)[len(ids) // 2 :]


@recorded(seeds=[0], kept=KEPT, chunk=CHUNK, length=LENGTH, **SMOLLM2)
@torch.no_grad()
def decoding_eviction() -> dict:
    """Record what a cache of the newest keys costs, with and without first keys.

    The RoPE trap: a key was rotated by its position; where the next position is the
    number of rows that the cache has left, distances are wrong.
    """
    model, tokenizer = load_model(EvictingAttention)
    passages, rows = cut_passages(tokenizer, PASSAGES, LENGTH), []
    for counted, sinks in product((True, False), SINKS):
        found = [
            compare_logits(
                read_evicting(model, ids, sinks, counted),
                model(ids[None])[0, len(ids) // 2 :],
            )
            for ids in passages
        ]
        rows.append({"sinks": sinks, "counted": counted} | average_rows(found))
    return {"rows": rows}


POSITIONS = (128, 512, 2048, 8192)
STEP_ROUNDS = 7


@recorded(seeds=[0], positions=POSITIONS, **SMOLLM2)
def decoding_steps() -> dict:
    """Record the time of one step against the bytes that it reads, over the length."""
    model, _ = load_model()
    decoder, sizes = PackedDecoder(model), CacheSizes.of(model)
    cache = KVCache(sizes, 1, POSITIONS[-1])
    ids = torch.zeros(1, 1, dtype=torch.long)
    matrix, vector = torch.ones(MEGABYTES * 160, 1536), torch.ones(1536)

    def step(positions: int) -> None:
        # What an empty cache has is read as what a full one has.
        cache.lengths = torch.tensor([positions - 1])
        decoder(ids, cache)

    calls = {str(n): partial(step, n) for n in POSITIONS}
    calls["product"] = partial(torch.mv, matrix, vector)
    taken = time_calls(calls, STEP_ROUNDS)
    rate = matrix.nbytes / statistics.median(taken["product"])
    weights = sum(x.nbytes for x in model.parameters())
    rows = [
        {
            "positions": n,
            "ms": list_quartiles(1000 * x for x in taken[str(n)]),
            "bytes": weights + n * sizes.bytes_per_token,
        }
        for n in POSITIONS
    ]
    return {"rows": rows, "bytes_a_second": rate}


# A layer of DeepSeek-V2-Lite: https://arxiv.org/abs/2405.04434, appendix B.1.
LITE = LatentSizes(2048, heads=16, latent=512, content=128, rotary=64, value=128)
LATENT_KEYS, LATENT_QUERIES, LATENT_ROUNDS = 1024, (1, 4, 16, 64, 256), 5


@recorded(seeds=[0], keys=LATENT_KEYS, heads=LITE.heads)
def decoding_latent() -> dict:
    """Record the times of MLA's two forms over the number of new symbols."""
    H, Z, K = LITE.heads, LITE.latent, LATENT_KEYS
    with use_seed(0):
        cache = torch.randn(1, 1, K, Z), torch.randn(1, 1, K, LITE.rotary)
        widths = LITE.content, LITE.value
        weights = [torch.randn(H, width, Z) / Z**0.5 for width in widths]
    rows = []
    for T in LATENT_QUERIES:
        with use_seed(T):
            queries = [torch.randn(1, H, T, n) for n in (LITE.content, LITE.rotary)]
        calls = {
            "naive": partial(attend_naive, *queries, *cache, *weights),
            "absorbed": partial(attend_absorbed, *queries, *cache, *weights),
        }
        taken = time_calls(calls, LATENT_ROUNDS, clock=time.process_time)
        ms = {name: list_quartiles(1000 * y for y in x) for name, x in taken.items()}
        rows.append({"queries": T, "ms": ms})
    return {"rows": rows}
