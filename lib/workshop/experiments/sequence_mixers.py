"""Layers that differ only in how a position reads the positions before it.

All of them project the input to queries, keys and values, convolve each of
these with the three positions before it, mix the positions, and project the
result. The short convolution tells neighbours apart, so that there is no
positional encoding, and it lets a key contain the symbol before its own, which
is what a lookup needs.

Source: the layer and its convolution: Yang et al. (2024), section 3.4 and
    appendix B, https://arxiv.org/abs/2406.06484; the gate of the memory: Yang
    et al. (2025), section 3, https://arxiv.org/abs/2412.06464. Departures: no
    activation after the convolution; the norm of the heads' outputs has no
    weights; the decay is a sigmoid.
Axes: B batch, H heads, T positions, S keys, C model width, D width of a head,
    F hidden width, V symbols
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.delta_rule import attend_delta_chunked
from attnbook.attention.linear import attend_linear_chunked
from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.masks import causal, window
from attnbook.models.recurrent import count_parameters
from attnbook.models.transformer import FeedForward

WIDTH, HEADS, HIDDEN = 64, 4, 128
KERNEL = 4  # positions of the short convolution, its own included
EPS = 1e-5  # of the norm of the delta rule's outputs
CHUNK = 32  # positions that the linear forms compute at once
OPEN = 6.0  # bias with which a memory starts to forget 0.25 % a position

Input = Float[Tensor, "B T C"]  # also a layer's output
Heads = Float[Tensor, "B H T D"]  # queries, keys, values or outputs


def convolve_causally(
    x: Float[Tensor, "B T C"], weight: Float[Tensor, "K C"]
) -> Float[Tensor, "B T C"]:
    """Return each column's sum of its last K positions, weighted."""
    T, before = x.shape[1], len(weight) - 1
    padded = F.pad(x, (0, 0, before, 0))
    output = weight[0] * x
    for back in range(1, len(weight)):
        output = output + weight[back] * padded[:, before - back :][:, :T]
    return output


class SequenceMixer(nn.Module):
    """Projections and a short convolution; a subclass mixes the positions."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.short = nn.Parameter(torch.empty(KERNEL, 3 * width))
        nn.init.uniform_(self.short, -(KERNEL**-0.5), KERNEL**-0.5)
        self.output = nn.Linear(width, width, bias=False)

    def project(self, x: Input) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads' queries, keys and values (B, H, T, D)."""
        projected = convolve_causally(self.inputs(x), self.short)
        query, key, value = (
            split_heads(part, self.heads) for part in projected.chunk(3, -1)
        )
        return query, key, value

    def mix(self, query: Heads, key: Heads, value: Heads, x: Input) -> Heads:
        """Return what each position reads; x is for gates."""
        raise NotImplementedError

    def forward(self, x: Input) -> Input:
        return self.output(merge_heads(self.mix(*self.project(x), x)))


class SoftmaxMixer(SequenceMixer):
    """Softmax attention to all positions up to the query's own."""

    def mask(self, T: int, device: torch.device) -> Bool[Tensor, "T T"]:
        """Return True where a query can attend."""
        return causal(T, T, device)

    def mix(self, query: Heads, key: Heads, value: Heads, x: Input) -> Heads:
        mask = self.mask(query.shape[-2], query.device)
        return F.scaled_dot_product_attention(query, key, value, mask)


class WindowMixer(SoftmaxMixer):
    """Softmax attention to the last `size` positions, the query's own included."""

    def __init__(self, width: int, heads: int, size: int):
        super().__init__(width, heads)
        self.size = size

    def mask(self, T: int, device: torch.device) -> Bool[Tensor, "T T"]:
        """Return True where a query can attend."""
        return window(T, T, self.size, device)


class LinearMixer(SequenceMixer):
    """Linear attention with the features elu + 1."""

    def mix(self, query: Heads, key: Heads, value: Heads, x: Input) -> Heads:
        return attend_linear_chunked(query, key, value, chunk=CHUNK).output


class DeltaMixer(SequenceMixer):
    """The delta rule, with queries and keys of length 1 and normalized outputs."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.beta = nn.Linear(width, heads)

    def log_decay(self, x: Input) -> Tensor | None:
        return None

    def mix(self, query: Heads, key: Heads, value: Heads, x: Input) -> Heads:
        """Return what the queries read from the memory, normalized."""
        query, key = (F.normalize(part, dim=-1) for part in (query, key))
        beta = self.beta(x).sigmoid().transpose(1, 2)
        rate = self.log_decay(x)
        output = attend_delta_chunked(query, key, value, beta, rate, chunk=CHUNK).output
        return F.rms_norm(output, output.shape[-1:], eps=EPS)


class GatedDeltaMixer(DeltaMixer):
    """The delta rule with a memory that decays as the input says."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.decay = nn.Linear(width, heads)
        nn.init.constant_(self.decay.bias, OPEN)

    def log_decay(self, x: Input) -> Tensor | None:
        """Return the rates of the memories' decay (B, H, T, 1)."""
        return F.logsigmoid(self.decay(x)).transpose(1, 2)[..., None]


WINDOW = 32
MIXERS: dict[str, Callable[[int, int], SequenceMixer]] = {
    "full": SoftmaxMixer,
    "window": partial(WindowMixer, size=WINDOW),
    "linear": LinearMixer,
    "delta": DeltaMixer,
    "gated delta": GatedDeltaMixer,
}


class MixerBlock(nn.Module):
    """Pre-norm block: a mixer, then the feed-forward network."""

    def __init__(self, mixer: SequenceMixer, width: int, hidden: int):
        super().__init__()
        self.mixer = mixer
        self.feed_forward = FeedForward(width, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Input) -> Input:
        """Return x after both sublayers."""
        x = x + self.mixer(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


class MixerModel(nn.Module):
    """A causal model of symbols with one kind of mixer.

    What a mixer has beyond the projections, such as gates, is taken from the
    hidden units, so that models of all kinds have equally many parameters.
    """

    def __init__(self, symbols: int, method: str, blocks: int = 2):
        super().__init__()
        self.embed = nn.Embedding(symbols, WIDTH)
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            mixer = MIXERS[method](WIDTH, HEADS)
            more = count_parameters(mixer) - WIDTH * (4 * WIDTH + 3 * KERNEL)
            fewer = round(more / (2 * WIDTH + 1))
            self.blocks.append(MixerBlock(mixer, WIDTH, HIDDEN - fewer))
        self.norm = nn.LayerNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, symbols)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.readout(self.norm(x))
