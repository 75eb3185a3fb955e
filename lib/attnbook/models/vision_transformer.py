"""The Vision Transformer: an encoder that reads an image as patches.

Source: Dosovitskiy et al. (2021), §3.1, equations 1 to 4,
    https://arxiv.org/abs/2010.11929. Departures: ReLU instead of GELU; the
    class is predicted by one linear layer.
Axes: B batch, I channels of an image, H and W its rows and columns of pixels,
    N patches, P values of a patch, C model width, K classes
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.models.patches import cut_patches
from attnbook.models.transformer_blocks import EncoderBlock, PreNorm
from attnbook.positions.absolute import LearnedEncoding


class NoEncoding(nn.Module):
    """Encodings that are zero at every position: the model has no order.

    Args:
        length: number of positions.
        width: C.
    """

    def __init__(self, length: int, width: int):
        super().__init__()
        self.length, self.width = length, width

    def forward(self, positions: Int[Tensor, "*T"]) -> Float[Tensor, "*T C"]:
        """Return zeros."""
        shape = (*positions.shape, self.width)
        return torch.zeros(shape, device=positions.device)


class VisionTransformer(nn.Module):
    """Patches, a class token, position encodings, encoder blocks, an output.

    The class token is position 0; patch n, counted row by row, is position
    n + 1. The output layer reads the class token alone.

    Args:
        size: pixels on each side of the square images.
        patch: pixels on each side of a patch.
        width: C.
        heads: of each block.
        layers: number of blocks.
        hidden: hidden width of the feed-forward networks.
        channels: I.
        classes: K.
        encoding: of the positions: `LearnedEncoding` or `NoEncoding`.

    Raises:
        ValueError: if the images do not divide into patches.
    """

    def __init__(
        self,
        size: int = 28,
        patch: int = 7,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        hidden: int = 64,
        channels: int = 1,
        classes: int = 10,
        encoding: type[nn.Module] = LearnedEncoding,
    ):
        super().__init__()
        blank = torch.zeros(1, channels, size, size, device="cpu")
        _, number, values = cut_patches(blank, patch).shape
        self.patch = patch
        self.project = nn.Linear(values, width)
        self.class_token = nn.Parameter(0.02 * torch.randn(width))
        self.positions = encoding(number + 1, width)
        self.blocks = nn.ModuleList(
            EncoderBlock(width, heads, hidden, residual=PreNorm) for _ in range(layers)
        )
        self.norm = PreNorm.make_final_norm(width)
        self.output = nn.Linear(width, classes)

    def embed(self, images: Float[Tensor, "B I H W"]) -> Tensor:
        """Return (B, N + 1, C): class token and patches with positions."""
        x = self.project(cut_patches(images, self.patch))  # (B, N, C)
        token = self.class_token.expand(len(x), 1, -1)  # (B, 1, C)
        x = torch.cat([token, x], dim=1)  # (B, N + 1, C)
        return x + self.positions(torch.arange(x.shape[1], device=x.device))

    def forward(self, images: Float[Tensor, "B I H W"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes."""
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x[:, 0]))
