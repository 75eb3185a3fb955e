"""Attention maps of a Transformer: the weights of all layers and heads.

There are three kinds of maps: encoder self-attention, decoder self-attention,
and cross-attention from the decoder to the source.

Source: Vaswani et al. (2017), section 3.2.3 (the three uses of attention),
    https://arxiv.org/abs/1706.03762
Axes: B batch, L blocks, H heads, S source symbols, T target symbols

Changing single heads of a model while it runs: ablation and patching.

An attention layer is a module with a number of `heads` and a linear layer
`output`, whose input is the heads' outputs side by side, as in
`MultiHeadAttention`. Layers are counted from 0 in the order in which the model
contains them, and so are the heads of a layer. The model's weights do not
change: a hook changes the input of `output` while the `with` block runs.

Source: ablation of heads: Michel et al. (2019), section 2,
    https://arxiv.org/abs/1905.10650; activation patching: Vig et al. (2020),
    section 3, https://arxiv.org/abs/2004.12265, and Meng et al. (2022), section
    2, https://arxiv.org/abs/2202.05262
Axes: B batch, L layers, H heads, T positions, C model width, D = C / H width of
    a head's output
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, merge_heads, split_heads
from attnbook.models.recurrent import EncoderDecoder


class TransformerMaps(NamedTuple):
    """The weights of every attention, before dropout.

    Attributes:
        encoder: encoder self-attention.
        decoder: causal decoder self-attention.
        cross: cross-attention to the source.
    """

    encoder: Float[Tensor, "B L H S S"]
    decoder: Float[Tensor, "B L H T T"]
    cross: Float[Tensor, "B L H T S"]


@contextmanager
def record_weights(attentions: Iterable[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Collect the weights of attentions, in the order in which they run.

    Each attention passes its weights to a dropout module, whose input is
    recorded.
    """
    recorded: list[Tensor] = []

    def record(module: nn.Module, given: tuple[Tensor]) -> None:
        recorded.append(given[0])

    hooks = [x.drop.register_forward_pre_hook(record) for x in attentions]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def collect_maps(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    previous: Int[Tensor, "B T"],
) -> TransformerMaps:
    """Return the weights of all attentions of a Transformer.

    Args:
        model: a Transformer, see `attnbook.models.transformer`.
        source: the source sequences.
        lengths: how many of its symbols are real.
        previous: the decoder's input, beginning with the start symbol:
            position t predicts the symbol after it.

    Raises:
        ValueError: if the encoder or the decoder has no blocks.
    """
    encoders = getattr(model.encoder, "blocks", None)
    decoders = getattr(model.decoder, "blocks", None)
    if not encoders or not decoders:
        raise ValueError(
            f"maps need an encoder and a decoder made of blocks, but these are "
            f"{type(model.encoder).__name__} and {type(model.decoder).__name__}"
        )
    groups = (
        [block.attention for block in encoders],
        [block.attention for block in decoders],
        [block.cross for block in decoders],
    )
    with (
        record_weights(groups[0]) as encoder,
        record_weights(groups[1]) as decoder,
        record_weights(groups[2]) as cross,
    ):
        model(source, lengths, previous)
    return TransformerMaps(*(torch.stack(x, dim=1) for x in (encoder, decoder, cross)))


Head = tuple[int, int]  # layer and head, both from 0
Edit = Callable[[Tensor], Tensor]  # from a head's output (B, T, D) to another


@runtime_checkable
class AttentionLayer(Protocol):
    """A layer whose heads can be changed.

    Attributes:
        heads: H.
        output: takes the heads' outputs side by side.
    """

    heads: int
    output: nn.Linear


def find_attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model by name, in its order.

    Raises:
        ValueError: if the model has none.
    """
    layers = {
        name: cast(AttentionLayer, module)
        for name, module in model.named_modules()
        if isinstance(getattr(module, "heads", None), int)
        and isinstance(getattr(module, "output", None), nn.Linear)
    }
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no attention layer with a number of "
            "`heads` and a linear layer `output`"
        )
    return layers


def check_heads(layers: Sequence[AttentionLayer], heads: Iterable[Head]) -> None:
    """Refuse heads that these layers do not have.

    Raises:
        ValueError: naming the number of the layer or head, and how many there
            are.
    """
    for layer, head in heads:
        if not 0 <= layer < len(layers):
            raise ValueError(
                f"there is no layer {layer} (head {head}): the model has "
                f"{len(layers)} attention layers, counted from 0"
            )
        count = layers[layer].heads
        if not 0 <= head < count:
            raise ValueError(
                f"there is no head {head} in layer {layer}: that layer has "
                f"{count} heads, counted from 0"
            )


def check_layers(model: nn.Module, given: Sequence[Any]) -> None:
    """Refuse a list that does not have one entry for each attention layer.

    Raises:
        ValueError: naming the number of entries and of layers.
    """
    count = len(find_attention_layers(model))
    if len(given) != count:
        raise ValueError(
            f"{len(given)} layers are given, but the model has {count} attention layers"
        )


def edit_outputs(
    merged: Float[Tensor, "B T C"], heads: int, edits: Mapping[int, Edit]
) -> Float[Tensor, "B T C"]:
    """Return the outputs of a layer's heads, some of them changed.

    Args:
        merged: the heads' outputs side by side.
        heads: H.
        edits: for some heads, a function of the head's output (B, T, D).

    Raises:
        ValueError: if an edit returns another shape.
    """
    parts = [*split_heads(merged, heads).unbind(dim=1)]
    for head, edit in edits.items():
        edited = edit(parts[head])
        if edited.shape != parts[head].shape:
            raise ValueError(
                f"the edit of head {head} returns the shape "
                f"{tuple(edited.shape)}, but the head's output has "
                f"{tuple(parts[head].shape)}"
            )
        parts[head] = edited
    return merge_heads(torch.stack(parts, dim=1))


@contextmanager
def edit_heads(model: nn.Module, edits: Mapping[Head, Edit]) -> Iterator[None]:
    """Change the outputs of some heads while the model runs.

    Args:
        model: run it inside the `with` block.
        edits: for pairs of layer and head, a function of the head's output
            (B, T, D), before the output projection, that returns another one.

    Raises:
        ValueError: if the model does not have a head, or if an edit returns
            another shape.
    """
    layers = [*find_attention_layers(model).values()]
    check_heads(layers, edits)
    of_layers: dict[int, dict[int, Edit]] = {}
    for (layer, head), edit in edits.items():
        of_layers.setdefault(layer, {})[head] = edit

    def make_hook(layer: int) -> Callable[..., Tensor]:
        def hook(module: nn.Module, given: tuple[Tensor]) -> Tensor:
            return edit_outputs(given[0], layers[layer].heads, of_layers[layer])

        return hook

    hooks = [
        layers[layer].output.register_forward_pre_hook(make_hook(layer))
        for layer in of_layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def record_heads(model: nn.Module) -> Iterator[list[list[Tensor]]]:
    """Keep the outputs of all heads while the model runs.

    Args:
        model: run it inside the `with` block.

    Yields:
        For each attention layer the outputs (B, H, T, D) of its heads, before
        the output projection, one tensor a call.

    Raises:
        ValueError: if the model has no attention layer.
    """
    layers = [*find_attention_layers(model).values()]
    kept: list[list[Tensor]] = [[] for _ in layers]

    def make_hook(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Tensor]) -> None:
            outputs = split_heads(given[0].detach(), layers[layer].heads)
            kept[layer].append(outputs)

        return hook

    hooks = [
        layer.output.register_forward_pre_hook(make_hook(i))
        for i, layer in enumerate(layers)
    ]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def average_outputs(recorded: Sequence[Sequence[Tensor]]) -> list[Float[Tensor, "H D"]]:
    """Return each layer's mean outputs of its heads, for mean ablation.

    Args:
        recorded: what `record_heads` kept; the mean is over calls, sequences
            and positions.

    Raises:
        ValueError: if a layer did not run.
    """
    if not all(recorded):
        layer = [bool(calls) for calls in recorded].index(False)
        raise ValueError(
            f"layer {layer} of {len(recorded)} did not run while its outputs "
            "were recorded"
        )
    return [
        torch.cat([x.transpose(1, 2).flatten(0, 1) for x in calls]).mean(dim=0)
        for calls in recorded
    ]


def ablate_heads(
    model: nn.Module,
    heads: Iterable[Head],
    mean: Sequence[Float[Tensor, "H D"]] | None = None,
) -> AbstractContextManager[None]:
    """Replace the outputs of some heads while the model runs.

    Args:
        model: run it inside the `with` block.
        heads: pairs of layer and head.
        mean: what replaces them, for each layer; zeros unless given.

    Raises:
        ValueError: if the model does not have a head, or if `mean` is that of
            another number of layers.
    """
    heads = [*heads]
    if mean is not None:
        check_layers(model, mean)

    def make_edit(layer: int, head: int) -> Edit:
        if mean is None:
            return torch.zeros_like
        return lambda output: mean[layer][head].to(output).expand_as(output)

    return edit_heads(model, {head: make_edit(*head) for head in heads})


def patch_heads(
    model: nn.Module,
    heads: Iterable[Head],
    recorded: Sequence[Sequence[Tensor]],
    positions: Sequence[int] | None = None,
) -> AbstractContextManager[None]:
    """Give some heads the outputs that they had in another run.

    Args:
        model: run it inside the `with` block, on inputs of the same length.
        heads: pairs of layer and head.
        recorded: what `record_heads` kept in the other run; its last call
            counts.
        positions: where the outputs are replaced; everywhere unless given.

    Raises:
        ValueError: if the model does not have a head, if the other run's model
            had another number of layers, or its inputs another shape.
    """
    check_layers(model, recorded)

    def make_edit(layer: int, head: int) -> Edit:
        def edit(output: Tensor) -> Tensor:
            other = recorded[layer][-1][:, head].to(output)
            if positions is None or other.shape != output.shape:
                return other
            patched = output.clone()
            patched[:, [*positions]] = other[:, [*positions]]
            return patched

        return edit

    return edit_heads(model, {head: make_edit(*head) for head in heads})
