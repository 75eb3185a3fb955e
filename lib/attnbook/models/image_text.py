"""Small models of images and their names.

`ContrastiveModel` gives an image and a name one vector each; those of a pair
should be similar. `GridReader` answers a question about one of several emoji in
an image: its text attends to the image behind a gate.

Source: contrastive training of Radford et al. (2021), section 2.3 and figure 3,
    https://arxiv.org/abs/2103.00020; cross-attention of Alayrac et al. (2022),
    section 2.2, https://arxiv.org/abs/2204.14198. Departures: a name's vector
    is the mean of its words' embeddings; the text model is a single block.
Axes: B batch, I names, L words of a name, H and W rows and columns of pixels,
    S positions of a feature map, T positions of the text, C width, F features,
    K classes, V words
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import GatedCrossAttention, MultiHeadAttention
from attnbook.models.transformer_blocks import EncoderBlock, PreNorm

TEMPERATURE = 0.07  # before training
COLDEST = 0.01  # temperatures below are not used
SPREAD = 0.02  # standard deviation of a word's embedding before training
CHANNELS = (24, 40, 64)  # of the three convolutions
STRIDE = 8  # pixels between neighboring positions of the feature map


def contrastive_loss(
    similarity: Float[Tensor, "B B"],
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy (nats) of finding each pair, both ways.

    Args:
        similarity: of image b (row) and text b (column), divided by the
            temperature; the pairs are on the diagonal.
    """
    pairs = torch.arange(len(similarity), device=similarity.device)
    by_image = F.cross_entropy(similarity, pairs)
    by_text = F.cross_entropy(similarity.T, pairs)
    return (by_image + by_text) / 2


def rank_pairs(similarity: Float[Tensor, "B B"]) -> Int[Tensor, " B"]:
    """Return, for each row, how many columns are more similar than its pair.

    The pairs are on the diagonal; 0 means that the pair is found first. Columns
    that are exactly as similar as the pair count as more similar.
    """
    return (similarity >= similarity.diagonal()[:, None]).sum(dim=1) - 1


class ConvolutionEncoder(nn.Module):
    """Three convolutions, each followed by ReLU and pooling, and an output.

    Args:
        classes: K, the width of the output.
        channels: of the convolutions.
    """

    def __init__(self, classes: int, channels: tuple[int, ...] = CHANNELS):
        super().__init__()
        sizes = (3, *channels)
        self.layers = nn.ModuleList(
            nn.Conv2d(*pair, 3, padding=1) for pair in pairwise(sizes)
        )
        self.output = nn.Linear(channels[-1], classes)

    def read_map(self, images: Float[Tensor, "B 3 H W"]) -> Tensor:
        """Return the features (B, S, F), S = H · W / 64, row by row."""
        x = images
        for layer in self.layers:
            x = F.max_pool2d(layer(x).relu(), 2)
        return x.flatten(2).mT

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B K"]:
        """Return the output for the mean of all positions."""
        return self.output(self.read_map(images).mean(dim=1))


class ContrastiveModel(nn.Module):
    """An image encoder and a name encoder with outputs of equal width.

    Args:
        encoder: makes a vector of width C of each image.
        words: V.
        width: C.
    """

    def __init__(self, encoder: nn.Module, words: int, width: int):
        super().__init__()
        self.encoder = encoder
        self.embedding = nn.Embedding(words, width)
        nn.init.normal_(self.embedding.weight, std=SPREAD)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    def encode_names(self, names: Int[Tensor, "I L"]) -> Float[Tensor, "I C"]:
        """Return the mean of the words' embeddings, with length 1."""
        return F.normalize(self.embedding(names).mean(dim=1), dim=-1)

    def encode_images(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B C"]:
        """Return the encoder's output, with length 1."""
        return F.normalize(self.encoder(images), dim=-1)

    def forward(
        self, images: Float[Tensor, "B 3 H W"], names: Int[Tensor, "I L"]
    ) -> Float[Tensor, "B I"]:
        """Return cosine similarities divided by the learned temperature."""
        cosines = self.encode_images(images) @ self.encode_names(names).T
        return cosines * self.log_scale.clamp(max=-math.log(COLDEST)).exp()


class UniformAttention(MultiHeadAttention):
    """Multi-head attention whose weights are all equal: an average."""

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B G S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return zeros."""
        return 0 * super().scores(query, key)


class GridReader(nn.Module):
    """Answers a question about an image: gated cross-attention, block, output.

    The text is the words of a name; the output layer reads their mean. Words
    and image encoder are frozen; the encoder's output layer turns each position
    of its feature map into a vector of the image. Queries and keys start as the
    normalized words and vectors themselves, so that the first scores are those
    of the contrastive training but for their scale.

    Args:
        encoder: of a trained `ContrastiveModel`.
        embedding: of its words.
        classes: K.
        attention: to the image, `MultiHeadAttention` or a variant of it.
    """

    def __init__(
        self,
        encoder: ConvolutionEncoder,
        embedding: nn.Embedding,
        classes: int,
        attention: type[MultiHeadAttention] = MultiHeadAttention,
    ):
        super().__init__()
        width = embedding.embedding_dim
        self.encoder = encoder.requires_grad_(False)
        self.embedding = embedding.requires_grad_(False)
        self.cross = GatedCrossAttention(width, 1, width, attention)
        for layer in (self.cross.attention.query, self.cross.attention.key):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.block = EncoderBlock(width, 1, 2 * width, residual=PreNorm)
        self.norm = PreNorm.make_final_norm(width)
        self.output = nn.Linear(width, classes)

    def read_image(self, images: Float[Tensor, "B 3 H W"]) -> Tensor:
        """Return the image's vectors (B, S, C), row by row, normalized."""
        vectors = self.encoder.output(self.encoder.read_map(images))
        return F.layer_norm(vectors, vectors.shape[-1:])

    def forward(
        self, image: Float[Tensor, "B S C"], names: Int[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B S"]]:
        """Return logits, and the mean of the words' weights on the image.

        Args:
            image: from `read_image`; it does not change in training.
            names: the words of each question.
        """
        words = self.embedding(names)  # (B, L, C)
        text, weights = self.cross(words, image)
        text = self.norm(self.block(text)).mean(dim=1)  # (B, C)
        return self.output(text), weights[:, 0].mean(dim=1)
