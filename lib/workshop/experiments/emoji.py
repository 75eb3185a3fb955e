"""Emoji and their names: retrieval.

Axes: A artists, B batch, N emoji, W words of a name
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data.emoji import ARTISTS, SIZE, list_emoji, load_emoji
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import VisionTransformer, contrastive_loss
from attnbook.training.loop import compute_rate_factor, optimize
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
WIDTH, BATCH, STEPS = 48, 72, 500
RATE, DECAY, WARMUP = 3e-3, 0.05, 0.1
FIRST = (1, 5)  # recall among the first 1 and the first 5
TEMPERATURE, COLDEST = 0.07, 0.01  # before training; none below is used
SPREAD = 0.02  # standard deviation of a word's embedding before training
CHANNELS = (3, 24, 40, 64)  # before and after the three convolutions
MARGIN = 2  # pixels of white around an image
Batch = tuple[Tensor, Tensor]  # images, and the words of their names


@cache
def index_words() -> tuple[int, Int[Tensor, "N 2"]]:
    """Return how many words there are, and the numbers of each name's two words.

    A name of a single word consists of this word twice.
    """
    names = [x.name.split() for x in list_emoji()]
    words = sorted({word for name in names for word in name})
    ids = [[words.index(name[0]), words.index(name[-1])] for name in names]
    return len(words), torch.tensor(ids)


def pad_emoji(images: Float[Tensor, "*B 20 20"]) -> Float[Tensor, "*B 24 24"]:
    """Return images with a white margin."""
    return F.pad(images, (MARGIN,) * 4, value=1.0)


class ConvolutionEncoder(nn.Module):
    """Three convolutions, each followed by ReLU and pooling, and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(*pair, 3, padding=1) for pair in pairwise(CHANNELS)
        )
        self.output = nn.Linear(CHANNELS[-1], WIDTH)

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C"]:
        """Return the output for the mean of all positions."""
        for layer in self.layers:
            images = F.max_pool2d(layer(images).relu(), 2)
        return self.output(images.flatten(2).mT.mean(dim=1))


class ContrastiveModel(nn.Module):
    """An image encoder, and a name's vector: the mean of its words' embeddings."""

    def __init__(self, encoder: nn.Module, words: int):
        super().__init__()
        self.encoder = encoder
        self.embedding = nn.Embedding(words, WIDTH)
        nn.init.normal_(self.embedding.weight, std=SPREAD)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    def forward(
        self, images: Float[Tensor, "B 3 H W"], names: Int[Tensor, "N 2"]
    ) -> Float[Tensor, "B N"]:
        """Return cosine similarities divided by the learned temperature."""
        encoded = F.normalize(self.encoder(images), dim=-1)
        cosines = encoded @ F.normalize(self.embedding(names).mean(dim=1), dim=-1).T
        return cosines * self.log_scale.clamp(max=-math.log(COLDEST)).exp()


def rank_pairs(similarity: Float[Tensor, "B B"]) -> Int[Tensor, " B"]:
    """Return how many columns are at least as similar to a row as its pair."""
    return (similarity >= similarity.diagonal()[:, None]).sum(dim=1) - 1


ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: ConvolutionEncoder(),
    "Vision Transformer": lambda: VisionTransformer(
        SIZE + 2 * MARGIN, 4, 40, 4, 2, 80, 3, WIDTH
    ),
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
        model = ContrastiveModel(ENCODERS[encoder](), index_words()[0])

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
