"""What SmolLM2-135M-Instruct predicts: recorded logits, text and losses.

They are the reference with which a copy of the weights on another machine is
compared. `make models` fetches the weights.

Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737
Axes: T positions, V symbols
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from attnbook.data import libreoffice
from attnbook.models.modern_decoder import ModernDecoder, decode_greedily
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_text import SMOLLM2

PROMPTS = (
    "The capital of France is",
    "The stone broke the window because it was",
    "Attention is all you",
    "1, 2, 3, 4,",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    "<|im_start|>assistant\n",
)
TOP, WRITTEN = 5, 24
# Each passage has LENGTH symbols; the loss is that of the second half, whose
# symbols have at least half of them before them.
PASSAGES, LENGTH = 4, 1024


@torch.no_grad()
def predict_next(model: ModernDecoder, ids: Sequence[int]) -> dict:
    """Return the symbols with the largest logits after a prompt."""
    logits, best = model(torch.tensor([ids]))[0, -1].topk(TOP)
    return {
        "ids": [*ids],
        "best": best.tolist(),
        "logits": logits.double().round(decimals=4).tolist(),
    }


def split_into_passages(
    ids: Sequence[int], count: int = PASSAGES, length: int = LENGTH
) -> Int[Tensor, "B T"]:
    """Return the first passages of a text.

    Raises:
        ValueError: if the text is shorter.
    """
    if len(ids) < count * length:
        raise ValueError(
            f"{count} passages need {count * length} symbols, but the text has "
            f"{len(ids)}"
        )
    return torch.tensor(ids[: count * length]).reshape(count, length)


@torch.no_grad()
def compute_second_half_loss(model: ModernDecoder, ids: Int[Tensor, "T"]) -> float:
    """Return the mean cross-entropy (nats) of a passage's second half."""
    half = len(ids) // 2
    logits = model(ids[None])[0, half:-1]
    return float(F.cross_entropy(logits, ids[half + 1 :]))


def read_help_text() -> str:
    """Return the English help sentences of the test set, one a line."""
    return "\n".join(pair.source[0] for pair in libreoffice.load_text().test)


@experiment(on_cpu=True)
@recorded(
    seeds=[],
    **SMOLLM2,
)
def smollm2_predictions() -> dict:
    """Record logits after prompts, a continuation, and losses on help texts."""
    model, tokenizer = load_smollm2(), load_smollm2_tokenizer()
    prompts = [tokenizer.encode(text).ids for text in PROMPTS]
    written = decode_greedily(model, torch.tensor([prompts[-1]]), WRITTEN)
    passages = split_into_passages(tokenizer.encode(read_help_text()).ids)
    losses = [compute_second_half_loss(model, ids) for ids in passages]
    return {
        "prompts": [
            {"text": text, **predict_next(model, ids)}
            for text, ids in zip(PROMPTS, prompts, strict=True)
        ],
        "continuation": {
            "ids": written[0].tolist(),
            "text": tokenizer.decode(written[0, len(prompts[-1]) :].tolist()),
        },
        "help_text_loss": sum(losses) / len(losses),
        "passages": losses,
    }
