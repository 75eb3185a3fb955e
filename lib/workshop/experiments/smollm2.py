"""SmolLM2-135M-Instruct: what it predicts, and the inputs of all its studies.

Passages are English sentences of LibreOffice's help, in the order of its pages, one a
line. Sentences that hold code, or are very short or long, are missing
(`attnbook.data.libreoffice`). The training split is used, because its pages are nearly
complete; SmolLM2 was not trained on it by us, and whether it has seen these pages is
not known.

A sequence of repeated random tokens is the symbol <|endoftext|>, N different
random tokens, and the same N again: only the first copy can tell what comes
next in the second. N takes three values, so that no fixed distance leads to the
first copy in all sequences.

Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737; repeated random
    tokens: Olsson et al. (2022), https://arxiv.org/abs/2209.11895
Axes: B batch, L layers, H heads, T positions, C model width, V symbols
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.data import libreoffice
from attnbook.models.hooks import record_weights
from attnbook.models.modern_decoder import (
    ModernDecoder,
    RotaryAttention,
    decode_greedily,
)
from attnbook.models.pretrained import (
    PACKAGE,
    SHA256,
    load_smollm2,
    load_smollm2_tokenizer,
)
from workshop.experiments.record import recorded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What a record says of the model.
SMOLLM2 = {
    "model": f"SmolLM2-135M-Instruct, Q4_1, from {PACKAGE}, Apache-2.0",
    "sha256": SHA256,
}
LENGTH = 1024  # symbols of a passage
PASSAGES = 12
# Lines between the start of a section, whose first passage is measured, and
# its other passages: two to train on, and one for the attention maps.
TRAINING = (350, 750)
MAPS = 1200


def load_model(
    attention: type[RotaryAttention] = RotaryAttention,
) -> tuple[ModernDecoder, "Tokenizer"]:
    """Return the pretrained model, with a class of attention, and its tokenizer."""
    return load_smollm2(attention), load_smollm2_tokenizer()


def read_lines() -> list[str]:
    """Return the English sentences of the training split, page by page."""
    return [pair.source[0] for pair in libreoffice.load_text().train]


def list_sections(lines: int, count: int) -> list[int]:
    """Return the first lines of sections of equal length."""
    return [i * lines // count for i in range(count)]


def cut_passage(
    tokenizer: "Tokenizer", lines: list[str], start: int, length: int
) -> Int[Tensor, "T"]:
    """Return the first symbols of the text that starts at a line.

    Raises:
        ValueError: if the text is shorter.
    """
    # No line has fewer than 3 words, so `length` symbols need fewer lines.
    text = "\n".join(lines[start : start + length // 3 + 1])
    ids = tokenizer.encode(text).ids
    if len(ids) < length:
        raise ValueError(
            f"a passage needs {length} symbols, but the text from line {start} "
            f"on has {len(ids)}"
        )
    return torch.tensor(ids[:length])


def count_bytes(tokenizer: "Tokenizer", ids: Int[Tensor, "T"]) -> int:
    """Return how many bytes of text some symbols are.

    Every character of a symbol's name in a byte-level vocabulary is one byte.
    """
    return sum(len(tokenizer.id_to_token(i)) for i in ids.tolist())


START = 0  # <|endoftext|>, which separates the texts in pre-training
SPECIAL = 17  # the first symbols, which are not text
LENGTHS = (24, 32, 40)  # N
EACH = 4  # sequences of each length


def draw_tokens(seed: int, count: int, symbols: int) -> Int[Tensor, " N"]:
    """Return different random symbols, none of them special."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(symbols - SPECIAL, generator=generator)
    return order[:count] + SPECIAL


def draw_repeated(seed: int, count: int, symbols: int) -> Int[Tensor, " T"]:
    """Return the start symbol and the same random tokens twice."""
    tokens = draw_tokens(seed, count, symbols)
    return torch.cat([torch.tensor([START]), tokens, tokens])


def draw_unrepeated(seed: int, count: int, symbols: int) -> Int[Tensor, " T"]:
    """Return the same first copy, followed by other random tokens.

    All tokens differ: it is the control of `draw_repeated`.
    """
    tokens = draw_tokens(seed, 2 * count, symbols)
    return torch.cat([torch.tensor([START]), tokens])


def draw_batches(
    seed: int, symbols: int, each: int, draw=draw_repeated
) -> list[Int[Tensor, "B T"]]:
    """Return one batch for each length; sequence i has the seed `seed` + i."""
    return [
        torch.stack([draw(seed + n * each + i, N, symbols) for i in range(each)])
        for n, N in enumerate(LENGTHS)
    ]


def cut_texts(tokenizer, count: int, length: int) -> Int[Tensor, "B T"]:
    """Return ordinary text: the start symbol and the first tokens of sections.

    Args:
        tokenizer: of SmolLM2.
        count: B; the sections are LibreOffice's help in equal parts.
        length: T, the start symbol among them.
    """
    lines, found = read_lines(), []
    for start in list_sections(len(lines), count):
        text = "\n".join(lines[start : start + length // 3 + 1])
        found.append([START, *tokenizer.encode(text).ids][:length])
    return torch.tensor(found)


@torch.no_grad()
def collect_weights(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> Float[Tensor, "L B H T T"]:
    """Return the weights of all heads."""
    attentions = [block.attention for block in model.blocks]
    with record_weights(attentions) as weights:
        list_block_inputs(model, ids)
    return torch.stack(weights)


@torch.no_grad()
def list_block_inputs(
    model: ModernDecoder, ids: Int[Tensor, "B T"]
) -> list[Float[Tensor, "B T C"]]:
    """Return the residual stream before each block, and after the last."""
    found = [model.embed(ids)]
    for block in model.blocks:
        found.append(block(found[-1])[0])
    return found


@torch.no_grad()
def compute_logits(
    model: ModernDecoder,
    x: Float[Tensor, "B T C"],
    layer: int = 0,
    rows: slice = slice(None),
) -> Float[Tensor, "B _ V"]:
    """Return logits of some positions from the input of a block."""
    for block in model.blocks[layer:]:
        x, _ = block(x)
    table = model.embed.get_parameter("table.weight")
    return model.norm(x[:, rows]) @ table.T


def measure_copying(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    x: Float[Tensor, "B T C"] | None = None,
    layer: int = 0,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return loss (nats) and accuracy on the second copy of each sequence.

    Its first token cannot be predicted and does not count.
    """
    x = model.embed(ids) if x is None else x
    half = (ids.shape[1] - 1) // 2
    logits = compute_logits(model, x, layer, slice(half + 1, -1))
    targets = ids[:, half + 2 :]
    loss = F.cross_entropy(logits.mT, targets, reduction="none").mean(dim=1)
    return loss, (logits.argmax(-1) == targets).float().mean(dim=1)


def measure_text(
    model: ModernDecoder,
    ids: Int[Tensor, "B T"],
    x: Float[Tensor, "B T C"] | None = None,
    layer: int = 0,
) -> Float[Tensor, " B"]:
    """Return the loss (nats a token) of each text, its first token included."""
    x = model.embed(ids) if x is None else x
    logits = compute_logits(model, x, layer, slice(0, -1))
    loss = F.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
    return loss.mean(dim=1)


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
PREDICTED, PREDICTED_LENGTH = 4, 1024


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
    ids: Sequence[int], count: int, length: int
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


@recorded(on_cpu=True, seeds=[], **SMOLLM2)
def smollm2_predictions() -> dict:
    """Record logits after prompts, a continuation, and losses on help texts.

    They are the reference with which a copy of the weights on another machine is
    compared. `python -m attnbook.models` fetches the weights.

    Source: Allal et al. (2025), https://arxiv.org/abs/2502.02737
    """
    model, tokenizer = load_model()
    prompts = [tokenizer.encode(text).ids for text in PROMPTS]
    written = decode_greedily(model, torch.tensor([prompts[-1]]), WRITTEN)
    passages = split_into_passages(
        tokenizer.encode(read_help_text()).ids, PREDICTED, PREDICTED_LENGTH
    )
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
