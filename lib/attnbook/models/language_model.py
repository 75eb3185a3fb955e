"""A decoder-only language model: every position predicts the next symbol.

Source: Radford et al. (2018), section 3.1,
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
    (there with learned positions; here the sinusoidal encoding of chapter 8)
Axes: B batch, T symbols, C model width, V symbols
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import causal_mask
from attnbook.models.devices import sample_columns
from attnbook.models.transformer import Embedding, Size
from attnbook.models.transformer_blocks import EncoderBlock


class LanguageModel(nn.Module):
    """Causal Transformer blocks with tied input and output embeddings."""

    def __init__(self, symbols: int, size: Size):
        super().__init__()
        self.embed = Embedding(symbols, size.width, size.dropout)
        self.blocks = size.stack(EncoderBlock)
        self.norm = size.residual.make_final_norm(size.width)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return logits: at each position, of the next symbol."""
        x = self.embed(ids)
        mask = causal_mask(ids.shape[1], ids.shape[1], x.device)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.embed.table.weight.T


@torch.no_grad()
def sample(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    count: int,
    temperature: float | int = 1.0,
    window: int | None = None,
    rng: torch.Generator | None = None,
) -> Int[Tensor, "B _"]:
    """Return ids with `count` more symbols sampled from the model.

    Args:
        model: from ids (B, T) to logits (B, T, V).
        ids: the beginning, at least one symbol.
        count: how many symbols to add.
        temperature: divides the logits; 0 takes the most probable symbol.
        window: how many of the last symbols the model gets; all unless given.
        rng: the generator; on the CPU, one seed gives the same symbols
            everywhere.

    Raises:
        ValueError: on a negative temperature or an empty beginning.
    """
    if temperature < 0:
        raise ValueError(f"temperature is {temperature} but must be at least 0")
    if not ids.shape[1]:
        raise ValueError(
            f"ids of shape {tuple(ids.shape)} are empty: sampling "
            "needs at least 1 symbol"
        )
    for _ in range(count):
        inputs = ids if window is None else ids[:, -window:]
        logits = model(inputs)[:, -1]
        if temperature == 0:
            drawn = logits.argmax(-1, keepdim=True)
        else:
            probabilities = (logits / temperature).softmax(-1)
            drawn = sample_columns(probabilities, rng)
        ids = torch.cat([ids, drawn], dim=1)
    return ids
