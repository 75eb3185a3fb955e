"""Recurrence against attention: what reaches the first symbol from the last.

Chapter: chapters/05_self_attention
Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
    https://arxiv.org/abs/1706.03762; the experiments are ours.
Axes: B batch, T positions, C width, V symbols
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.evidence.scaling import timed
from attnbook.self_attention import self_attention

LENGTHS, SEEDS, WIDTH = (2, 4, 8, 16, 32, 64, 128, 256, 512), range(5), 64
RECALLED, RECALL_SEEDS, STEPS, SYMBOLS = (16, 64, 256), (0, 1, 2), 300, 16


class Attention(nn.Module):
    """One layer of self-attention with the calling form of `nn.GRU`."""

    def __init__(self, width: int):
        super().__init__()
        made = torch.randn(3, width, width) / width**0.5
        self.projections = nn.Parameter(made)

    def forward(self, x: Float[Tensor, "B T C"]) -> tuple[Tensor, None]:
        """Return what every position takes from all."""
        return self_attention(x, *self.projections), None


def orthogonal(width: int) -> nn.RNN:
    """Return a tanh network whose recurrent matrix keeps lengths."""
    network = nn.RNN(width, width, batch_first=True)
    nn.init.orthogonal_(network.weight_hh_l0)
    return network


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "rnn": lambda width: nn.RNN(width, width, batch_first=True),
    "rnn, orthogonal": orthogonal,
    "gru": lambda width: nn.GRU(width, width, batch_first=True),
    "lstm": lambda width: nn.LSTM(width, width, batch_first=True),
    "attention": Attention,
}


def reach(
    model: nn.Module, x: Float[Tensor, "B T C"], upstream: Float[Tensor, "B C"]
) -> tuple[float, float]:
    """Return how much of the last output's gradient reaches both ends of x.

    Returns:
        The mean norm on the first position, and on the last.
    """
    x = x.detach().requires_grad_()
    last = model(x)[0][:, -1]
    (found,) = torch.autograd.grad(last, x, upstream)
    norms = found.norm(dim=-1).mean(0)
    return float(norms[0]), float(norms[-1])


def reached(kind: str, length: int, seed: int) -> tuple[float, float]:
    """Return `reach` for new weights and random inputs, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[kind](WIDTH).double()
        x = torch.randn(8, length, WIDTH, dtype=torch.float64)
        upstream = torch.randn(8, WIDTH, dtype=torch.float64)
    return reach(model, x, upstream)


class Recall(nn.Module):
    """Name the first symbol, which is marked, from the last position."""

    def __init__(self, kind: str):
        super().__init__()
        self.embed = nn.Embedding(2 * SYMBOLS, WIDTH)
        self.layer = MODELS[kind](WIDTH)
        self.readout = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, text: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Return logits of the symbol at the first place."""
        first = torch.arange(text.shape[1]) == 0
        return self.readout(
            self.layer(self.embed(text + SYMBOLS * first))[0][:, -1]
        )


def recall(kind: str, length: int, seed: int) -> dict:
    """Train to name the first symbol; return the share of wrong answers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Recall(kind)
    rng = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        text = torch.randint(SYMBOLS, (32, length), generator=rng)
        loss = F.cross_entropy(model(text), text[:, 0])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    text = torch.randint(SYMBOLS, (512, length), generator=rng)
    with torch.no_grad():
        wrong = (model(text).argmax(-1) != text[:, 0]).double().mean()
    return {"error": float(wrong), "loss": float(loss.detach())}


def path_length() -> dict:
    """Record the gradient at the first symbol, and what can be learned."""

    def run() -> dict:
        results: dict = {"first": {}, "last": {}, "recall": {}}
        for kind in MODELS:
            ends = [[reached(kind, n, s) for s in SEEDS] for n in LENGTHS]
            results["first"][kind] = [[a for a, _ in row] for row in ends]
            results["last"][kind] = [[b for _, b in row] for row in ends]
        for kind in ("gru", "lstm", "attention"):
            results["recall"][kind] = [
                [recall(kind, n, s)["error"] for s in RECALL_SEEDS]
                for n in RECALLED
            ]
        return results

    return timed(
        "path_length",
        list(SEEDS),
        run,
        lengths=list(LENGTHS),
        recalled=list(RECALLED),
        width=WIDTH,
    )
