"""The exercises of the chapter on decoding.

Source: latent attention: DeepSeek-AI (2024), section 2.1, https://arxiv.org/abs/2405.04434;
    the rejection rule: Leviathan et al. (2023), section 2.3 and equation 1,
    https://arxiv.org/abs/2211.17192; quantized caches: Liu et al. (2024), section 3,
    https://arxiv.org/abs/2402.02750; the faults are those of public code, in the
    chapter's pitfalls
Axes: L layers, H heads, G key-value heads, T queries, S keys, D width of a head, Z of
    a latent, N of a head's query without position, R of its rotary part, E of a value,
    n proposed tokens, V tokens
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from attnbook.decoding import caches, latent, speculation
from attnbook.exercises.declare import Case, Draw, Exercise, differ
from attnbook.positions.rotary import rotate
from attnbook.profiling import steps


def cache_bytes(
    L: int, H: int, G: int, D: int, Z: int, R: int, S: int, window: int, group: int
) -> list[int]:
    """Return the bytes of the caches of one sequence of S positions.

    In this order: MHA, GQA and MLA with 16-bit numbers; GQA with 16 bits and a
    window; GQA with 4 bits and a 16-bit scale and offset for each group of numbers.
    """
    numbers = 2 * G * D  # a key and a value
    kept = min(S, window)
    scales = L * S * numbers // group
    found = [2 * H * D * S, numbers * S, (Z + R) * S, numbers * kept]
    return [*(2 * L * n for n in found), L * S * numbers // 2 + 4 * scales]


def bytes_cases(draw):
    def sizes(S=0, window=0):
        G, group = draw.whole(2, 5), 2 * draw.whole(4, 9)
        Z, R, S = draw.whole(40, 70), draw.whole(10, 20), S or draw.whole(100, 200)
        L, H, D = draw.whole(3, 9), G * draw.whole(2, 4), group * draw.whole(2, 4)
        return L, H, G, D, Z, R, S, window or draw.whole(30, 60), group

    yield "with a window beyond the first positions", *sizes(S=9)
    yield "with many positions", *sizes()
    yield "with as many positions as the window", *sizes(50, 50)
    yield "with the attention of large models", 32, 32, 8, 128, 512, 64, 8192, 4096, 32


check_cache_bytes = Exercise(
    cache_bytes,
    bytes_cases,
    stars=1,
    minutes=10,
    section="Bytes for each token: MHA, GQA, MQA and windows",
    title="bytes of five caches",
    returns=("bytes",),
    library=(steps.count_cache_bytes, caches.CacheSizes),
    mistakes={
        "keys-only": (
            "only keys are counted; values are cached, too",
            "= 2 * G * D → = G * D ; [2 * H → [H",
        ),
        "latent-twice": (
            "the latent is counted twice; keys and values share it",
            "(Z + R) * S → (2 * Z + R) * S",
        ),
        "latent-of-each-head": (
            "the latent is counted once a head; all heads share it",
            "(Z + R) → H * (Z + R)",
        ),
        "no-rotary-key": (
            "the rotary key of MLA is missing",
            "(Z + R) → Z",
        ),
        "window-not-full": (
            "the window is counted whole; a shorter sequence does not fill it",
            "= min(S, window) → = window",
        ),
        "no-scales": (
            "scales and offsets are missing; each group of numbers has both",
            " + 4 * scales → ",
        ),
    },
    hints=(
        "How many numbers does one position leave in one layer?",
        "A group of numbers takes half a byte for each of them, and 4 bytes besides.",
    ),
)


def attend_latent(
    query: Float[Tensor, "H T N"],
    turned: Float[Tensor, "H T R"],
    latents: Float[Tensor, "S Z"],
    rotary_key: Float[Tensor, "S R"],
    W_key: Float[Tensor, "H N Z"],
    W_value: Float[Tensor, "H E Z"],
    mask: Bool[Tensor, "T S"],
) -> Float[Tensor, "H T E"]:
    """Return multi-head latent attention without keys and values of heads."""
    scale = (query.shape[-1] + turned.shape[-1]) ** -0.5
    absorbed = query @ W_key  # (H, T, Z)
    scores = (absorbed @ latents.T + turned @ rotary_key.T) * scale
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    average = weights @ latents  # (H, T, Z)
    return average @ W_value.mT


def latent_cases(draw):
    def inputs(H, T, S, N, R, Z, E):
        widths = (H, T, N), (H, T, R), (S, Z), (S, R), (H, N, Z), (H, E, Z)
        mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        return *(draw.normal(*shape) for shape in widths), mask

    yield "with one query and one key", *inputs(1, 1, 1, 2, 3, 4, 5)
    yield "with one head", *inputs(1, 4, 4, 5, 2, 3, 6)
    yield "with a chunk of queries and a cache", *inputs(3, 4, 9, 6, 2, 5, 7)
    yield "with one query and a cache", *inputs(4, 1, 12, 5, 4, 8, 3)
    # The keys of one head alone take 307 kB.
    large = inputs(8, 1, 600, 128, 4, 8, 128)
    tries = "with one query, 600 keys and 250 kB of memory"
    yield Case(tries, large, gradient=False, memory=250_000)


check_attend_latent = Exercise(
    attend_latent,
    latent_cases,
    stars=2,
    minutes=20,
    section="Multi-head latent attention: cache one narrow vector",
    title="attention in the latent space",
    returns=("output",),
    library=(latent.attend_absorbed, latent.attend_naive),
    mistakes={
        "expanded": (
            "it expands the latents to keys or values; project the query instead",
            [
                "absorbed @ latents.T → query @ (latents @ W_key.mT).mT ; "
                "weights @ latents → weights @ (latents @ W_value.mT) ; "
                "average @ W_value.mT → average",
                "absorbed @ latents.T → query @ (latents @ W_key.mT).mT",
                "weights @ latents → weights @ (latents @ W_value.mT) ; "
                "average @ W_value.mT → average",
            ],
        ),
        "no-rotary-part": (
            "the rotary part of the scores is missing",
            " + turned @ rotary_key.T → ",
        ),
        "scale-of-other-width": (
            "the scale is 1/√(N + R), of queries and keys as they would be expanded",
            [
                "(query.shape[-1] + turned.shape[-1]) → query.shape[-1]",
                "(query.shape[-1] + turned → (latents.shape[-1] + turned",
                "(query.shape[-1] + turned.shape[-1]) → latents.shape[-1]",
            ],
        ),
        "not-masked": (
            "the mask is not applied",
            "scores.masked_fill(~mask, -torch.inf) → scores",
        ),
        "average-of-latents": (
            "this is the average of the latents, which W_value has yet to map",
            "average @ W_value.mT → average",
        ),
    },
    hints=(
        "Where can you put the brackets in query · (W_key · latent)?",
        "Average the latents first, and multiply by W_value last.",
    ),
)


def accept_tokens(
    proposed: list[int],
    draft: Float[Tensor, "n V"],
    target: Float[Tensor, "_ V"],
    uniform: Float[Tensor, " n"],
) -> tuple[int, Float[Tensor, " V"]]:
    """Return how many tokens are accepted, and the probabilities of the next one."""
    for i, token in enumerate(proposed):
        if uniform[i] < target[i, token] / draft[i, token]:
            continue
        rest = (target[i] - draft[i]).clamp(min=0)
        return i, rest / rest.sum()
    return len(proposed), target[-1]


def read_accepted(found: tuple, *inputs: object) -> tuple[Tensor, Tensor]:
    """Return both parts as tensors."""
    count, rest = found
    return torch.as_tensor(count).long(), torch.as_tensor(rest).double()


def tokens_cases(draw: Draw):
    def case(tries, kinds, cold=False):
        """Make proposals more probable in the target (+) or less: accepted (~) or not.

        The target is one-hot if cold, as in greedy decoding.
        """
        n, V = len(kinds), 7
        logits = draw.normal(n + 1, V), draw.normal(n, V)
        target, draft = ((1.5 * x).softmax(-1) for x in logits)
        rise, uniform = target[:-1] - draft, torch.full((n,), 0.99)
        best = [
            row.argmax() if x == "+" else row.argmin()
            for x, row in zip(kinds, rise, strict=True)
        ]
        proposed = [int(x) for x in best]
        for i, token in enumerate(proposed):
            if kinds[i] == "~":
                uniform[i] = 0.7 * target[i, token] / draft[i, token]
        if cold:
            target = torch.eye(V)[[(proposed[0] + (kinds == "-")) % V, 0]]
        return Case(tries, (proposed, draft, target, uniform), gradient=False)

    yield case("with one token that is accepted", "~")
    yield case("with one token that is rejected", "-")
    yield case("with three tokens that are accepted", "+~+")
    yield case("with a rejected token before others", "~-+~")
    yield case("with two rejected tokens", "+~--")
    yield case("with one greedy token that is accepted", "+", cold=True)
    yield case("with one greedy token that is rejected", "-", cold=True)
    yield case("with no token", "")


check_accept_tokens = Exercise(
    accept_tokens,
    tokens_cases,
    stars=2,
    minutes=15,
    section="Speculative decoding: check several tokens in one pass",
    title="the rejection rule",
    returns=("accepted", "probabilities"),
    library=(speculation.accept,),
    compare=read_accepted,
    mistakes={
        "target-after-rejection": (
            "after a rejection, the residual max(0, p - q) has the next token",
            "return i, rest / rest.sum() → return i, target[i]",
        ),
        "residual-not-normalized": (
            "the residual is not divided by its sum",
            "rest / rest.sum() → rest",
        ),
        "residual-reversed": (
            "the residual is max(0, q - p); it should be max(0, p - q)",
            "(target[i] - draft[i]) → (draft[i] - target[i])",
        ),
        "ratio-inverted": (
            "the ratio is q / p; it should be p / q",
            "target[i, token] / draft[i, token] → draft[i, token] / target[i, token]",
        ),
        "goes-on-after-rejection": (
            "it also counts accepted tokens after the first that is rejected",
            "return i, → return i + sum("
            "bool(uniform[j] < target[j, x] / draft[j, x]) "
            "for j, x in enumerate(proposed) if j > i),",
        ),
        "accepts-the-argmax": (
            "it accepts only the target's most probable token, as greedy decoding does",
            "uniform[i] < target[i, token] / draft[i, token] → "
            "token == int(target[i].argmax())",
        ),
        "no-token-more": (
            "if all are accepted, the next token has the last row of the target",
            "target[-1] → target[max(0, len(target) - 2)]",
        ),
    },
    hints=(
        "Compare each uniform number with p / q of the proposed token.",
        "What does the model give more probability than the draft? That is left over.",
    ),
)


FAULTS = (
    "no fault",
    "a first pass without causal mask",
    "cached passes without window",
    "cached passes with a mask aligned at the top left",
    "positions that restart in each pass",
    "a prefix hit that reads the rows of the latest prompt",
)
PAGE = 4


class Decoder:
    """Two layers of attention to a window with a KV cache, and one of `FAULTS`.

    Called with the tokens of each pass, it returns one vector a token, (T, 8). The
    first page of a prompt is found again in later calls.
    """

    def __init__(self, fault: int, window: int, seed: int):
        draw = Draw(seed)
        self._fault, self.window = fault, window
        self.table = draw.normal(64, 8, dtype=torch.float64)
        shape = 2, 3, 8, 8
        self.weights = draw.normal(*shape, dtype=torch.float64) / 8**0.5
        self.seen: set[tuple[int, ...]] = set()
        self.page: list[tuple[Tensor, Tensor]] = []

    def __call__(self, passes: list[list[int]]) -> Tensor:
        """Run the passes with one cache, as far as the fault allows."""
        cache = [(torch.zeros(0, 8, dtype=torch.float64),) * 2] * 2
        found, first = [], tuple(passes[0][:PAGE])
        hit = self._fault == 5 and first in self.seen
        for ids in passes:
            past, x = len(cache[0][0]), self.table[torch.as_tensor(ids).long()]
            mask = self._make_mask(past, len(x))
            start = 0 if self._fault == 4 else past
            positions = torch.arange(start, start + len(x))
            for layer, W in enumerate(self.weights):
                query, key, value = x @ W
                query, key = rotate(torch.stack([query, key])[None], positions)[0]
                if hit and not past:
                    pairs = zip(self.page[layer], (key, value), strict=True)
                    key, value = (torch.cat([old, new[PAGE:]]) for old, new in pairs)
                pairs = zip(cache[layer], (key, value), strict=True)
                keys, values = (torch.cat(pair) for pair in pairs)
                cache[layer] = keys, values
                scores = (query @ keys.T).masked_fill(~mask, -torch.inf)
                x = x + scores.softmax(-1) @ values
            if not past and len(first) == PAGE:
                self.seen.add(first)
                self.page = [(key[:PAGE], value[:PAGE]) for key, value in cache]
            found.append(x)
        return torch.cat(found)

    def _make_mask(self, past: int, T: int) -> Tensor:
        """Return (T, S), the keys that each query can attend to."""
        S = past + T
        back = torch.arange(past, S)[:, None] - torch.arange(S)
        if past and self._fault == 3:
            back = back - past
        causal = (back >= 0) | (self._fault == 1 and not past)
        return causal & ((back < self.window) | (self._fault == 2 and past > 0))


def decoder_fault(decode: Callable, window: int) -> int:
    """Return the number of a decoder's fault, 0 if there is none."""
    ids = list(range(3 * window))  # two layers of windows do not reach the start

    def step(ids: list[int]) -> Tensor:
        return decode([[x] for x in ids])

    whole, other = decode([ids]), decode([[*ids[:-1], 63]])
    if differ(other[:-1], whole[:-1]):  # the last token changes earlier outputs
        return 1
    decode([ids[::-1]])
    if differ(decode([ids]), whole):  # another prompt between changes the output
        return 5
    short = ids[:window]
    if not differ(step(short), decode([short])):
        return 2 if differ(step(ids), whole) else 0
    # Aligned at the top left, a step attends to the first key alone.
    changed = step([short[0], 63, *short[2:]])
    return 4 if differ(changed[-1], step(short)[-1]) else 3


def decoder_cases(draw):
    pairs = draw.shuffle((fault, n) for fault in range(6) for n in (5, 7))
    for fault, window in pairs:
        decode = Decoder(fault, window, draw.whole(0, 10**6))
        tries = f"with {FAULTS[fault]} and a window of {window}"
        yield Case(tries, (decode, window), gradient=False)


check_decoder_fault = Exercise(
    decoder_fault,
    decoder_cases,
    stars=3,
    minutes=30,
    section="Pitfalls",
    title="the fault of a decoder",
    returns=("fault",),
    mistakes={
        "one-pass": (
            "it never compares a prompt in one pass with one token a pass",
            "[[x] for x in ids] → [ids]",
        ),
        "within-the-window": (
            "its sequences are too short for the window to matter",
            "return 2 if differ(step(ids), whole) else 0 → return 0",
        ),
        "no-later-token": (
            "it does not change a later token of a prompt",
            "return 1 → pass",
        ),
        "same-prompt-again": (
            "it runs one prompt again, but no other one between",
            "decode([ids[::-1]]) → decode([ids])",
        ),
        "order-for-mask": (
            "positions that restart and a mask at the top left are confused",
            "return 4 if → return 3 if ; else 3 → else 4",
        ),
        "no-earlier-token": (
            "it does not test whether a step depends on the token before",
            "return 4 if differ(changed[-1], step(short)[-1]) else 3 → return 4",
        ),
    },
    hints=(
        "Which outputs must be equal, and which must change, if a token is changed?",
        "One prompt in one pass, in many passes, and again after another prompt.",
    ),
)


CACHES = (
    "all keys",
    "exponentials that are added from the newest to the oldest",
    "values in bfloat16",
    "keys in 8 bits, except the newest 16",
    "the newest 64 keys",
    "unused rows of the last page",
)


class ToyCache:
    """Keys and values, of which attention sees what its kind (of `CACHES`) says."""

    def __init__(self, kind: int):
        self._kind = kind
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add keys (T, D) and values (T, E)."""
        self.keys.append(key)
        self.values.append(value.bfloat16().to(value) if self._kind == 2 else value)

    def attend(self, query: Tensor) -> Tensor:
        """Return attention of a query (D,), (E,)."""
        key, value = torch.cat(self.keys), torch.cat(self.values)
        if self._kind == 3 and len(key) > 16:
            old = caches.dequantize(*caches.quantize(key[:-16].T, bits=8)).T
            key = torch.cat([old, key[-16:]])
        elif self._kind == 4:
            key, value = key[-64:], value[-64:]
        elif self._kind == 5:
            key, value = (pad(x, (0, 0, 0, -len(key) % 16)) for x in (key, value))
        scores = key @ query * query.shape[-1] ** -0.5
        if self._kind == 1:
            weights = (scores - scores[-1]).exp().flip(0)
            return weights @ value.flip(0) / weights.sum()
        return scores.softmax(-1) @ value


def is_exact(make_cache: Callable) -> bool:
    """Return whether a cache's attention is exact, up to rounding."""
    draw = torch.Generator().manual_seed(0)
    drawn = (torch.randn(100, 6, generator=draw) for _ in range(3))
    queries, keys, values = drawn
    cache = make_cache()
    for n in range(1, 101):
        cache.append(keys[n - 1 : n], values[n - 1 : n])
        scores = keys[:n] @ queries[n - 1] * 6**-0.5
        right = scores.softmax(-1) @ values[:n]
        if differ(cache.attend(queries[n - 1]), right):
            return False
    return True


def exact_cases(draw):
    for kind in draw.shuffle([*range(6), 0, 1]):
        yield Case(f"with {CACHES[kind]}", (partial(ToyCache, kind),), gradient=False)


check_is_exact = Exercise(
    is_exact,
    exact_cases,
    stars=3,
    minutes=20,
    section="Pitfalls",
    title="a test that tells exact caches from nearly exact ones",
    returns=("exact",),
    mistakes={
        "bit-for-bit": (
            "it allows no rounding; an exact cache may add in another order",
            "if differ(cache.attend(queries[n - 1]), right): → "
            "if not torch.equal(cache.attend(queries[n - 1]), right):",
        ),
        "too-loose": (
            "its bound is wider than what fewer bits or evicted keys change",
            "if differ(cache.attend(queries[n - 1]), right): → "
            "if (cache.attend(queries[n - 1]) - right).abs().max() > 0.3:",
        ),
        "too-short": (
            "its sequence is too short: nothing is evicted or quantized yet",
            "in range(1, 101) → in range(1, 17)",
        ),
        "whole-pages": (
            "it tests only whole pages; the last one should not be full",
            "if differ → if n % 16 == 0 and differ",
        ),
        "round-numbers": (
            "its values are small whole numbers, which bfloat16 stores exactly",
            "values[n - 1 : n]) → values[n - 1 : n].round()) ; "
            "@ values[:n] → @ values[:n].round()",
        ),
    },
    hints=(
        "What do you know about the rounding of float32, and of bfloat16?",
        "Compare after each of 100 tokens with attention to all keys.",
    ),
)
