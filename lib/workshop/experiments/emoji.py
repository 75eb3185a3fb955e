"""Emoji and their names: retrieval.

Axes: A artists, B batch, N emoji, W words of a name
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.data.emoji import (
    ARTISTS,
    CELL,
    index_words,
    load_emoji,
    pad_emoji,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import (
    ContrastiveModel,
    ConvolutionEncoder,
    VisionTransformer,
    contrastive_loss,
    rank_pairs,
)
from attnbook.training.loop import compute_rate_factor, optimize
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
WIDTH, BATCH, STEPS = 48, 72, 500
RATE, DECAY, WARMUP = 3e-3, 0.05, 0.1
FIRST = (1, 5)  # recall among the first 1 and the first 5
Batch = tuple[Tensor, Tensor]  # images, and the words of their names


ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: ConvolutionEncoder(WIDTH),
    "Vision Transformer": lambda: VisionTransformer(CELL, 4, 40, 4, 2, 80, 3, WIDTH),
}


def load_artists(artists: list[str]) -> Float[Tensor, "A N 3 20 20"]:
    """Return the emoji of some artists, from 0 to 1."""
    return torch.stack([load_emoji(x) for x in artists]) / 255


def change_images(
    images: Float[Tensor, "B 3 H W"], rng: torch.Generator
) -> Float[Tensor, "B 3 H W"]:
    """Return images turned, scaled, shifted, mirrored and recolored at random."""
    count = len(images)

    def draw(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=rng)

    angle, scale = draw(-0.25, 0.25), draw(0.85, 1.2)
    mirror = draw(-1.0, 1.0).sign()
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1)
    matrix = turn.view(-1, 2, 2) * scale[:, None, None]
    matrix = matrix * torch.stack([mirror, torch.ones(count)], 1)[:, None]
    matrix = torch.cat([matrix, draw(-0.15, 0.15, 2, 1)], dim=2)
    places = F.affine_grid(matrix, [*images.shape], align_corners=False)
    moved = 1 - F.grid_sample(1 - images, places, align_corners=False)
    gray = moved.mean(dim=1, keepdim=True)
    moved = gray + draw(0.0, 1.2, 1, 1, 1).clamp(max=1) * (moved - gray)
    return moved * draw(0.7, 1.0, 3, 1, 1) + draw(-0.05, 0.05, 3, 1, 1)


def draw_batches(drawn: Float[Tensor, "A N 3 20 20"], seed: int) -> Iterator[Batch]:
    """Yield images of different emoji, each by a random artist, and names."""
    rng, (_, names) = torch.Generator().manual_seed(seed), index_words()
    artists, number = drawn.shape[:2]
    for _ in range(STEPS):
        chosen = torch.randperm(number, generator=rng)[:BATCH]
        artist = torch.randint(artists, (BATCH,), generator=rng)
        images = change_images(drawn[artist, chosen], rng)
        yield pad_emoji(images), names[chosen]


def train_model(encoder: str, held_out: str, seed: int) -> ContrastiveModel:
    """Return a model trained on the emoji of the other artists."""
    drawn = load_artists([x for x in ARTISTS if x != held_out])
    with use_seed(seed):
        words = len(index_words()[0])
        model = ContrastiveModel(ENCODERS[encoder](), words, WIDTH)

    def compute_loss(batch: Batch) -> Tensor:
        return contrastive_loss(model(*batch))

    optimize(
        torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY),
        draw_batches(drawn, seed),
        compute_loss,
        lambda step: RATE * compute_rate_factor(step / STEPS, WARMUP),
    )
    return model.eval()


def measure_recall(similarity: Float[Tensor, "N N"]) -> dict:
    """Return recall at 1 and 5, both ways, of images (rows) and names."""
    return {
        direction: {str(k): float((rank_pairs(x) < k).double().mean()) for k in FIRST}
        for direction, x in (
            ("image to name", similarity),
            ("name to image", similarity.T),
        )
    }


def compare_pixels(held_out: str) -> Float[Tensor, "N N"]:
    """Return how near an artist's pixels are to the others', without learning."""
    images = load_artists([held_out])[0].flatten(1)
    others = load_artists([x for x in ARTISTS if x != held_out]).flatten(2)
    return -torch.stack([torch.cdist(images, x) for x in others]).amin(dim=0)


@torch.no_grad()
def measure_model(model: ContrastiveModel, held_out: str) -> dict:
    """Return a model's recall of the held-out artist and of the others."""
    _, names = index_words()
    recall = {
        artist: measure_recall(model(pad_emoji(load_artists([artist])[0]), names))
        for artist in ARTISTS
    }
    trained = [x for artist, x in recall.items() if artist != held_out]
    return {"trained": trained, "held out": recall[held_out]}


@recorded(seeds=SEEDS)
def emoji_retrieval() -> dict:
    """Record how often emoji of an artist unseen in training are found.

    Image and name encoders are trained with the contrastive loss on the emoji of
    two artists; the third artist's are ranked. Two image encoders of about equally
    many parameters: convolutions, and a Vision Transformer.

    Source: Radford et al. (2021), sections 2.3 to 2.5,
        https://arxiv.org/abs/2103.00020. Departures: 288 images, a batch of 72
        different names, images that are turned, scaled, shifted and recolored.
    """
    found: dict = {"pixels": {}, "parameters": {}, "models": {x: {} for x in ENCODERS}}
    for name, runs in found["models"].items():
        for held_out in ARTISTS:
            models = [train_model(name, held_out, seed) for seed in SEEDS]
            runs[held_out] = [measure_model(model, held_out) for model in models]
        found["parameters"][name] = count_parameters(models[0].encoder)
    for held_out in ARTISTS:
        found["pixels"][held_out] = measure_recall(compare_pixels(held_out))
    return found
