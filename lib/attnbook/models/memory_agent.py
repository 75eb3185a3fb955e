"""Agents with and without a memory of past observations.

At each step, an agent returns logits of its actions and an estimate of its
future reward (the value). The three agents differ in what they keep: the keys
and values of all past observations, one recurrent state, or nothing.

Source: a recurrent and a Transformer agent are compared in T-mazes by Ni et
    al. (2023), https://arxiv.org/abs/2307.03864. Departure: the modern block of
    this library, with one head, and a GRU.
Axes: B episodes, T steps, H heads, A actions, C width
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.models.modern_decoder import (
    CachedBlock,
    ModernAttention,
    RotaryAttention,
    SwiGLU,
)
from attnbook.models.transformer import RMSNorm


class MemorylessAgent(nn.Module):
    """An agent whose action depends on the present observation alone.

    Variants override `remember`, and set `core`.

    Args:
        symbols: number of observations.
        actions: A.
        width: C.
        hidden: width of the feed-forward network.
        state: width of what the output layers read; C unless given.
    """

    core: Any

    def __init__(
        self,
        symbols: int,
        actions: int,
        width: int = 32,
        hidden: int = 107,
        state: int | None = None,
    ):
        super().__init__()
        state = width if state is None else state
        self.embed = nn.Embedding(symbols, width)
        self.norm = RMSNorm(state)
        self.policy, self.value = nn.Linear(state, actions), nn.Linear(state, 1)
        self.core = self.make_core(width, hidden, state)

    def make_core(self, width: int, hidden: int, state: int) -> nn.Module:
        """Return the layers between embedding and output layers."""
        return nn.Sequential(RMSNorm(width), SwiGLU(width, hidden))

    def remember(
        self, x: Float[Tensor, "B T C"], memory: Any
    ) -> tuple[Float[Tensor, "B T C"], Any]:
        """Return what the output layers read, and the next memory: none."""
        return x + self.core(x), None

    def forward(
        self, observations: Int[Tensor, "B T"], memory: Any = None
    ) -> tuple[Float[Tensor, "B T A"], Float[Tensor, "B T"], Any]:
        """Return logits of the actions, values, and the memory afterwards.

        Args:
            observations: of the next T steps.
            memory: what an earlier call returned; none at the start.
        """
        x, memory = self.remember(self.embed(observations), memory)
        x = self.norm(x)
        return self.policy(x), self.value(x)[..., 0], memory


class RecurrentAgent(MemorylessAgent):
    """An agent whose memory is the state of a GRU.

    Args:
        symbols: number of observations.
        actions: A.
        width: C.
        state: width of the GRU's state.
    """

    def __init__(self, symbols: int, actions: int, width: int = 32, state: int = 44):
        super().__init__(symbols, actions, width, state=state)

    def make_core(self, width: int, hidden: int, state: int) -> nn.Module:
        """Return the GRU."""
        return nn.GRU(width, state, batch_first=True)

    def remember(
        self, x: Float[Tensor, "B T C"], memory: Any
    ) -> tuple[Float[Tensor, "B T N"], Any]:
        """Return the states of the GRU, and the last one."""
        return self.core(x, memory)


class AttentionAgent(MemorylessAgent):
    """An agent that attends to its past observations, in one block.

    The block has one head, so that one map says where a step attends.

    Args:
        symbols: number of observations.
        actions: A.
        width: C.
        hidden: width of the feed-forward network.
    """

    def __init__(self, symbols: int, actions: int, width: int = 32, hidden: int = 64):
        super().__init__(symbols, actions, width, hidden)

    attend: type[RotaryAttention] = ModernAttention

    def make_core(self, width: int, hidden: int, state: int) -> nn.Module:
        """Return the block."""
        return CachedBlock(self.attend(width, 1, 1), SwiGLU(width, hidden), width)

    def remember(
        self, x: Float[Tensor, "B T C"], memory: Any
    ) -> tuple[Float[Tensor, "B T C"], Any]:
        """Return the block's output, and the keys and values so far."""
        return self.core(x, memory)

    def compute_weights(
        self, observations: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T T"]:
        """Return the attention weights of each step on itself and earlier."""
        x = self.core.norms[0](self.embed(observations))
        mask = causal_mask(x.shape[1], x.shape[1], x.device)
        return self.core.attention(x, mask=mask, need_weights=True)[1][:, 0]


class UnrotatedAttention(ModernAttention):
    """The attention of the modern block without rotary embeddings."""

    def project(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B T C"],
        start: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, whatever their positions."""
        parts = GroupedQueryAttention.project(self, query, memory)
        return *self.normalize(*parts[:2]), parts[2]


class UnpositionedAgent(AttentionAgent):
    """An agent that attends to past observations whatever their order."""

    attend = UnrotatedAttention
