"""Positional encodings on sequences longer than those trained on.

Source: the question is that of Press et al. (2022), section 1,
    https://arxiv.org/abs/2108.12409; copying is a task of Kazemnejad et
    al. (2023), https://arxiv.org/abs/2305.19466. The experiments are ours.
Axes: B batch, T positions
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.data.libreoffice import encode_characters
from attnbook.models.devices import use_seed
from attnbook.positions.absolute import LearnedEncoding, SinusoidalEncoding, frequencies
from attnbook.positions.biases import AlibiBias, ShawEncoding, T5Bias
from attnbook.positions.rotary import (
    apply_rotary,
    interpolate_positions,
    rotary_angles,
    scale_llama3,
    scale_ntk_aware,
)
from attnbook.training.language_modeling import cut_windows
from attnbook.training.loop import IGNORED_TARGET, compute_next_token_loss, optimize
from workshop.experiments.record import recorded

LENGTH, LONGEST = 64, 512  # trained on, and read
SYMBOLS = 256  # of the copying task; one more marks the middle
SIZE, RATE = 32, 3e-3
WIDTH, HEADS, LAYERS = 64, 4, 2
HEAD = WIDTH // HEADS
# The largest distance with an entry of its own in Shaw's table, and in T5's,
# whose 16 buckets are exact up to 8: both well within the trained length.
SHAW_REACH, T5_BUCKETS, T5_REACH = 16, 16, 32
METHODS = ("none", "sinusoidal", "learned", "shaw", "t5", "alibi", "rope")


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention whose three projections are one product."""

    def __init__(self) -> None:
        super().__init__(WIDTH, HEADS, bias=False)

    def project(self, query: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.query.weight, self.key.weight, self.value.weight
        projected = F.linear(query, torch.cat(parts)).chunk(3, dim=-1)
        query, key, value = (split_heads(x, self.heads) for x in projected)
        return query, key, value


class ShawAttention(SelfAttention):
    """Self-attention with Shaw's relative positions in scores and output."""

    shaw: ShawEncoding

    def scores(self, query: Tensor, key: Tensor) -> Float[Tensor, "B H T T"]:
        return super().scores(query, key) + self.shaw(query, key.shape[2])

    def combine(self, weights: Tensor, value: Tensor) -> Float[Tensor, "B H T D"]:
        return super().combine(weights, value) + self.shaw.output(weights)


class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys are rotated."""

    frequencies = frequencies(HEAD)

    def scores(self, query: Tensor, key: Tensor) -> Float[Tensor, "B H T T"]:
        positions = torch.arange(query.shape[2], device=query.device)
        angle = rotary_angles(positions, self.frequencies.to(query.device))
        return super().scores(*(apply_rotary(x, angle) for x in (query, key)))


class AttentionOnlyTransformer(nn.Module):
    """Embeddings, pre-norm causal self-attention layers and an output layer.

    Only attention combines positions, and only the method, one of METHODS, and the
    causal mask distinguish them.
    """

    def __init__(self, symbols: int, method: str):
        super().__init__()
        self.embed = nn.Embedding(symbols, WIDTH)
        kinds = {"shaw": ShawAttention, "rope": RotaryAttention}
        attention = kinds.get(method, SelfAttention)
        self.layers = nn.ModuleList(attention() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS + 1))
        self.readout = nn.Linear(WIDTH, symbols)
        # Drawn last, so that all methods start from the same other weights.
        if method == "shaw":
            for layer in self.layers:
                layer.shaw = ShawEncoding(HEAD, SHAW_REACH)
        self.encoding = {
            "sinusoidal": lambda: SinusoidalEncoding(WIDTH),
            "learned": lambda: LearnedEncoding(LONGEST, WIDTH),
        }.get(method, lambda: None)()
        self.bias = {
            "t5": lambda: T5Bias(HEADS, T5_BUCKETS, T5_REACH, False),
            "alibi": lambda: AlibiBias(HEADS),
        }.get(method, lambda: None)()

    def rescale(self, frequencies: Float[Tensor, " P"]) -> None:
        for layer in self.layers:
            layer.frequencies = frequencies

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        T, x, bias = ids.shape[1], self.embed(ids), None
        if self.encoding is not None:
            x = x + self.encoding(torch.arange(T, device=ids.device))
        if self.bias is not None:
            bias = self.bias(T, T).to(x)
        mask = causal_mask(T, T, ids.device)
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x), mask=mask, bias=bias)
        return self.readout(self.norms[-1](x))


def draw_copying(
    count: int, half: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return texts of different symbols, a mark, and the same again."""
    order = torch.rand(count, SYMBOLS, generator=rng).argsort(dim=1)
    part = order[:, :half]
    mark = torch.full((count, 1), SYMBOLS)
    whole = torch.cat([part, mark, part], dim=1)
    wanted = whole[:, 1:].clone()
    wanted[:, :half] = IGNORED_TARGET
    return whole[:, :-1], wanted


def draw_windows(
    count: int, length: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    last = len(encode_characters("train")[0]) - length
    starts = torch.randint(last, (count,), generator=rng)
    return cut_windows("train", starts, length)


def draw_batch(task: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch to train on; none is longer than LENGTH."""
    if task == "text":
        return draw_windows(SIZE, LENGTH, rng)
    half = int(torch.randint(4, LENGTH // 2 + 1, (), generator=rng))
    return draw_copying(SIZE, half, rng)


def train(
    task: str, method: str, seed: int, rates: Float[Tensor, "P"] | None = None
) -> AttentionOnlyTransformer:
    """Return a trained model; the learning rate falls linearly to 0.

    With `rates`, these are the frequencies of its rotations.
    """
    steps = STEPS[task]
    symbols = SYMBOLS + 1 if task == "copy" else encode_characters("train")[1]
    with use_seed(seed):
        model = AttentionOnlyTransformer(symbols, method)
    if rates is not None:
        model.rescale(rates)
    rng = torch.Generator().manual_seed(seed)
    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw_batch(task, rng) for _ in range(steps)),
        lambda batch: compute_next_token_loss(model(batch[0]), batch[1]),
        lambda step: RATE * (1 - step / steps),
    )
    return model


@torch.no_grad()
def measure_copying_error(model: nn.Module, length: int, count: int = 64) -> float:
    rng = torch.Generator().manual_seed(10**6)
    wrong = []
    for _ in range(count // 16):
        text, wanted = draw_copying(16, length // 2, rng)
        predicted = model(text).argmax(-1)
        wrong.append((predicted != wanted)[wanted != IGNORED_TARGET].double().mean())
    return float(torch.stack(wrong).mean())


@torch.no_grad()
def measure_reading_loss(model: nn.Module, length: int, count: int = 128) -> float:
    text, _ = encode_characters("test")
    gap = (len(text) - LONGEST - 1) // count
    ends = LONGEST + gap * torch.arange(count)
    losses = []
    for some in ends.split(16):
        windows = text[some[:, None] + torch.arange(-length, 1)]
        logits = model(windows[:, :-1])[:, -LENGTH:]
        losses.append(compute_next_token_loss(logits, windows[:, -LENGTH:]).double())
    return float(torch.stack(losses).mean())


TIMES, SEEDS = (1, 2, 4, 8), (0, 1, 2)
STEPS = {"copy": 2500, "text": 1200}
MEASURES = {"copy": measure_copying_error, "text": measure_reading_loss}
# What is done to a model trained with rotary positions before it reads texts
# that are s times longer: its frequencies.
SCALINGS = {"interpolated": interpolate_positions, "ntk-aware": scale_ntk_aware}


def measure(task: str, model: AttentionOnlyTransformer, rates=None) -> list[float]:
    """Return the error or loss at each length, with frequencies `rates(s)` if given."""
    found = []
    for times in TIMES:
        if rates:
            model.rescale(rates(times))
        found.append(MEASURES[task](model, LENGTH * times))
    return found


def train_and_measure(task: str, method: str, seed: int) -> dict[str, list[float]]:
    model = train(task, method, seed)
    found = {method: measure(task, model)}
    if method == "rope":
        for name, scale in SCALINGS.items():
            found[f"rope, {name}"] = measure(task, model, partial(scale, HEAD))
    return found


def train_all(task: str, trained: Iterable[str], run: Callable) -> dict:
    """Return a row for each result of each training; `run` returns lists by name."""
    rows = [
        {"method": method, "seed": seed, "found": found}
        for seed, name in product(SEEDS, trained)
        for method, found in run(task, name, seed).items()
    ]
    return {"rows": rows}


@recorded(seeds=SEEDS, times=TIMES)
def extrapolation_copy() -> dict:
    """Record the share of symbols copied wrong when a sequence is repeated."""
    return train_all("copy", METHODS, train_and_measure)


@recorded(seeds=SEEDS, times=TIMES)
def extrapolation_text() -> dict:
    """Record the loss on the same characters after more or less text."""
    return train_all("text", METHODS, train_and_measure)


USUAL = "base 10,000"
# What a model is trained with: one frequency for each pair of columns. A
# frequency of 0 leaves a pair unrotated.
SETTINGS = {
    "base 10": frequencies(HEAD, 10.0),
    USUAL: frequencies(HEAD),
    "base 1,000,000": frequencies(HEAD, 1e6),
    "half of the columns": torch.cat([frequencies(HEAD // 2), torch.zeros(HEAD // 4)]),
}
PARTS = ("all pairs", "fast pairs", "slow pairs")


def rescale_part(part: str, factor: int) -> Float[Tensor, "P"]:
    """Return frequencies of which all, the fast or the slow are divided."""
    rates = frequencies(HEAD)
    slow = rates * LENGTH < 2 * torch.pi
    chosen = {"all pairs": slow | ~slow, "fast pairs": ~slow}.get(part, slow)
    return torch.where(chosen, interpolate_positions(HEAD, factor), rates)


def train_with_setting(task: str, setting: str, seed: int) -> dict[str, list[float]]:
    model = train(task, "rope", seed, SETTINGS[setting])
    found = {setting: measure(task, model)}
    if setting == USUAL:
        found["llama-3"] = measure(
            task, model, lambda times: scale_llama3(HEAD, times, LENGTH, 1e4)
        )
        for part in PARTS:
            model.rescale(rescale_part(part, 2))
            found[f"{part} halved"] = [
                MEASURES[task](model, LENGTH * times) for times in (1, 2)
            ]
    return found


@recorded(seeds=SEEDS, times=TIMES)
def rotary_settings_copy() -> dict:
    """Record the share of symbols copied wrong for each setting.

    Only the frequencies of the rotations differ from `extrapolation_copy`'s.
    """
    return train_all("copy", SETTINGS, train_with_setting)


@recorded(seeds=SEEDS, times=TIMES)
def rotary_settings_text() -> dict:
    """Record the loss on the same characters for each setting."""
    return train_all("text", SETTINGS, train_with_setting)
