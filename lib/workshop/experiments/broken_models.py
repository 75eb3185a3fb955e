"""Models that are sound, and broken in known ways.

PyTorch's Transformer encoder fills in letters that are missing from words of
CMUdict. Some faults are made before training, as in public code, and the model is
trained with them. Others are made in the weights or the code of a trained model and
undone at the end of a `with` block, so that it is known which heads are broken.

Axes: B batch, T letters, C model width, H heads, G groups (key-value heads), D width
    of a head, V symbols
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, merge_heads, split_heads
from attnbook.data import cmudict
from attnbook.diagnose.head_alarms import Layer, find_layers, get_projection
from attnbook.models import modern_block
from attnbook.models.devices import use_seed
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.positions.rotary import rotate_halves
from attnbook.training.loop import IGNORED_TARGET

PAD, MISSING, LETTERS = 0, 1, "abcdefghijklmnopqrstuvwxyz'"
SYMBOLS = 2 + len(LETTERS)
WIDTH, HEADS, LAYERS, POSITIONS = 32, 4, 2, 20
SHORTEST, LONGEST = 5, 12
STEPS, SIZE, RATE = 300, 64, 8e-3


class Words(NamedTuple):
    """Words with missing letters.

    Attributes:
        ids: symbols, PAD after a word and MISSING in place of some letters.
        lengths: of the words.
        targets: the missing letters, IGNORED_TARGET elsewhere.
    """

    ids: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B T"]

    def mark_real(self) -> Bool[Tensor, "B T"]:
        """Return True where there is a letter, missing or not."""
        return self.ids != PAD


@cache
def read_words(split: str) -> Int[Tensor, "N T"]:
    """Return the words of a split of CMUdict, padded."""
    words = {"".join(pair.source) for pair in getattr(cmudict.load(), split)}
    some = sorted(w for w in words if SHORTEST <= len(w) <= LONGEST)
    rows = [[2 + LETTERS.index(x) for x in w] for w in some]
    return torch.tensor([row + [PAD] * (LONGEST - len(row)) for row in rows])


def hide_letters(words: Int[Tensor, "N T"], count: int, rng: torch.Generator) -> Words:
    """Return some words, each with one letter missing."""
    ids = words[torch.randint(len(words), (count,), generator=rng)]
    lengths = (ids != PAD).sum(dim=1)
    place = (torch.rand(count, generator=rng) * lengths).long()[:, None]
    targets = torch.full_like(ids, IGNORED_TARGET)
    targets.scatter_(1, place, ids.gather(1, place))
    return Words(ids.scatter(1, place, MISSING), lengths, targets)


class EditedAttention(nn.MultiheadAttention):
    """PyTorch's layer with another scale, or softmax over another axis.

    Attributes:
        scale: of the scores.
        axis: of the softmax; -1 is that of the keys.
    """

    scale, axis = (WIDTH // HEADS) ** -0.5, -1

    # PyTorch's takes more positional arguments than its encoder passes on.
    def forward(  # type: ignore[override]
        self, query, key, value, key_padding_mask=None, need_weights=True, **settings
    ):
        """Return the output, and the weights if requested, as PyTorch does."""
        parts = zip(
            (query, key, value),
            self.in_proj_weight.chunk(3),
            self.in_proj_bias.chunk(3),
            strict=True,
        )
        q, k, v = (split_heads(F.linear(x, W, b), self.num_heads) for x, W, b in parts)
        scores = self.scale * q @ k.mT
        if key_padding_mask is not None:
            scores = scores + key_padding_mask[:, None, None]
        weights = scores.softmax(self.axis)
        output = self.out_proj(merge_heads(weights @ v))
        return output, weights if need_weights else None


class UnscaledAttention(EditedAttention):
    """Scores are not divided by the root of the width of a head."""

    scale = 1.0


class QuerySoftmaxAttention(EditedAttention):
    """Softmax over the queries: the weights of a key sum to 1."""

    axis = -2


@dataclass(frozen=True)
class Build:
    """How an encoder is built.

    Attributes:
        attention: the class of its attention.
        positions: whether learned positions are added.
        padding: what is masked: "keys", "queries" or "nothing".
        batch_first: whether the encoder is told that the batch is the first
            axis, as it is.
        trained: whether it is trained.
        queries: whether its query projections are; else they stay zero.
    """

    attention: type[nn.MultiheadAttention] = nn.MultiheadAttention
    positions: bool = True
    padding: str = "keys"
    batch_first: bool = True
    trained: bool = True
    queries: bool = True


# Faults before training. Every head is affected.
BUILDS = {
    "sound": Build(),
    "scores not scaled": Build(attention=UnscaledAttention),
    "softmax over queries": Build(attention=QuerySoftmaxAttention),
    "padding attended to": Build(padding="nothing"),
    "mask on padded queries": Build(padding="queries"),
    "no positions": Build(positions=False),
    "batch taken for positions": Build(batch_first=False, padding="nothing"),
    "queries stay zero": Build(queries=False),
    "not trained": Build(trained=False),
}


class LetterModel(nn.Module):
    """PyTorch's encoder between an embedding and an output layer."""

    def __init__(self, build: Build):
        super().__init__()
        self.build = build
        self.letter = nn.Embedding(SYMBOLS, WIDTH)
        self.position = nn.Embedding(POSITIONS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            4 * WIDTH,
            dropout=0.0,
            # PyTorch's fast path knows ReLU and GELU only. It would bypass
            # `EditedAttention` and, in evaluation mode, treats every number of
            # a mask that is not 0 as masked out:
            # https://github.com/pytorch/pytorch/issues/107084
            activation=F.silu,
            batch_first=build.batch_first,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        for block in self.encoder.layers:
            block.self_attn.__class__ = build.attention  # the same weights
            if not build.queries:
                silence_queries(block.self_attn)
        self.readout = nn.Linear(WIDTH, SYMBOLS)

    def make_masks(self, real: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
        """Return the encoder's masks: numbers that are added to the scores."""
        hidden = torch.zeros(real.shape).masked_fill(~real, -1e9)
        if self.build.padding == "nothing":
            return {}
        if self.build.padding == "keys":
            return {"src_key_padding_mask": hidden}
        rows = hidden.repeat_interleave(HEADS, dim=0)[:, :, None]
        return {"mask": rows.expand(-1, -1, real.shape[1])}

    def forward(
        self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of each position's letter."""
        positions = torch.arange(ids.shape[1])
        x = self.letter(ids)
        if self.build.positions:
            x = x + self.position(positions)
        return self.readout(
            self.encoder(x, **self.make_masks(positions < lengths[:, None]))
        )


def silence_queries(layer: nn.MultiheadAttention) -> None:
    """Set the query projection to zero, and keep it there in training."""
    with torch.no_grad():
        layer.in_proj_weight[:WIDTH] = 0.0
        layer.in_proj_bias[:WIDTH] = 0.0
    kept = torch.arange(3 * WIDTH) >= WIDTH
    layer.in_proj_weight.register_hook(lambda g: g * kept[:, None])
    layer.in_proj_bias.register_hook(lambda g: g * kept)


def train_model(build: Build, seed: int) -> LetterModel:
    """Return a model that was trained with the batches of a seed."""
    words, rng = read_words("train"), torch.Generator().manual_seed(seed)
    with use_seed(seed):
        model = LetterModel(build)
    if not build.trained:
        return model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS)
    for _ in range(STEPS):
        batch = hide_letters(words, SIZE, rng)
        optimizer.zero_grad()
        compute_loss(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def compute_loss(model: LetterModel, words: Words) -> Float[Tensor, ""]:
    """Return the mean cross-entropy (nats) of the missing letters."""
    logits = model(words.ids, words.lengths)
    return F.cross_entropy(
        logits.flatten(0, 1), words.targets.flatten(), ignore_index=IGNORED_TARGET
    )


def view_rows(layer: Layer, part: str, head: int) -> list[Tensor]:
    """Return a head's rows of a projection, and of its bias if it has one.

    Args:
        layer: an attention layer.
        part: "query", "key" or "value".
        head: H of the layer's; with groups, the keys and values are its
            group's.
    """
    if isinstance(layer, MultiHeadAttention):
        linear, count = getattr(layer, part), layer.heads
        if part != "query":
            head, count = head * layer.groups // layer.heads, layer.groups
        whole = [linear.weight, linear.bias]
    else:
        i, count = ("query", "key", "value").index(part), layer.num_heads
        whole = [
            None if x is None else x.chunk(3)[i]
            for x in (layer.in_proj_weight, layer.in_proj_bias)
        ]
    return [x.unflatten(0, (count, -1))[head] for x in whole if x is not None]


def find_partner(layer: Layer, head: int) -> int:
    """Return the next head of the same group, or of the layer."""
    heads = get_projection(layer)[1]
    size = heads
    if isinstance(layer, MultiHeadAttention) and layer.groups < heads:
        size = heads // layer.groups
    return head // size * size + (head + 1) % size


def zero_output(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Set a head's columns of the output projection to zero."""
    output, heads = get_projection(layer)
    output.weight.unflatten(1, (heads, -1))[:, head] = 0.0
    return [head]


def zero_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Set a head's query projection to zero."""
    for rows in view_rows(layer, "query", head):
        rows.zero_()
    return [head]


def copy_head(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Copy a head's query and key projections to the next head."""
    other = find_partner(layer, head)
    for part in ("query", "key"):
        pairs = zip(
            view_rows(layer, part, other), view_rows(layer, part, head), strict=True
        )
        for to, original in pairs:
            to.copy_(original.clone())
    return [head, other]


def randomize_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Replace a head's query projection by random weights of the same size."""
    for rows in view_rows(layer, "query", head):
        rows.copy_(torch.randn(rows.shape, generator=rng) * rows.std())
    return [head]


def unscale_queries(layer: Layer, head: int, rng: torch.Generator) -> list[int]:
    """Multiply a head's scores by the root of its width."""
    for rows in view_rows(layer, "query", head):
        rows.mul_(get_width(layer) ** 0.5)
    return [head]


def get_width(layer: Layer) -> int:
    """Return D, the width of a head."""
    output, heads = get_projection(layer)
    return output.in_features // heads


# Faults in one head, by name; each returns the heads that it affects.
HEAD_FAULTS: dict[str, Callable] = {
    "output projection zero": zero_output,
    "queries zero": zero_queries,
    "copy of another head": copy_head,
    "queries random": randomize_queries,
    "scores not scaled": unscale_queries,
}


@contextmanager
def keep_weights(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Undo changes of the weights of some layers."""
    kept = [{k: v.clone() for k, v in layer.state_dict().items()} for layer in layers]
    try:
        yield
    finally:
        for layer, state in zip(layers, kept, strict=True):
            layer.load_state_dict(state)


@contextmanager
def break_heads(
    model: nn.Module, heads: list[tuple[str, int]], fault: str, seed: int
) -> Iterator[list[tuple[str, int]]]:
    """Make a fault in some heads, each given by its layer's name and number.

    Yields:
        The heads that are affected.
    """
    rng = torch.Generator().manual_seed(seed)
    found = find_layers(model)
    layers = [found[name] for name, _ in heads]
    with keep_weights(layers):
        affected = []
        with torch.no_grad():
            for (name, head), layer in zip(heads, layers, strict=True):
                broken = HEAD_FAULTS[fault](layer, head, rng)
                affected += [(name, one) for one in broken]
        yield affected


def see_all(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return a mask that masks nothing out, in place of the causal one."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device)


def replace_code(name: str, function: Callable) -> Callable:
    """Return a fault: another function in the module of the decoder's block."""
    return lambda model: mock.patch.object(modern_block, name, function)


@contextmanager
def unscale_all(model: ModernDecoder) -> Iterator[None]:
    """Multiply all scores by the root of the width of a head."""
    layers = [block.attention for block in model.blocks]
    with keep_weights(layers), torch.no_grad():
        for layer in layers:
            layer.query.weight.mul_(get_width(layer) ** 0.5)
        yield


@contextmanager
def randomize_all(model: ModernDecoder) -> Iterator[None]:
    """Replace the weights of all attention layers by random ones.

    Each matrix keeps its root mean square.
    """
    layers = [block.attention for block in model.blocks]
    rng = torch.Generator().manual_seed(0)
    with ExitStack() as stack:
        stack.enter_context(keep_weights(layers))
        with torch.no_grad():
            for layer in layers:
                for weight in layer.parameters():
                    drawn = torch.randn(weight.shape, generator=rng)
                    weight.copy_(drawn * weight.square().mean().sqrt())
        yield


# Faults in all layers of a pretrained decoder.
DECODER_FAULTS: dict[str, Callable] = {
    "scores not scaled": unscale_all,
    "no causal mask": replace_code("causal_mask", see_all),
    "no positions": replace_code("rotate", lambda x, positions, base: x),
    "wrong pairs rotated": replace_code("rotate", rotate_halves),
    "attention not loaded": randomize_all,
}
