"""Read and change what the attentions of a running model compute, by hooks.

`collect_maps` and `record_weights` read weights. `record_heads`, `ablate_heads` and
`patch_heads` read and replace the outputs of single heads: ablation and patching. For
these, an attention layer is a module with a number of `heads` and a linear layer
`output`, whose input is the heads' outputs side by side, as in `MultiHeadAttention`.
Layers are counted from 0 in the order in which the model contains them, and so are the
heads of a layer. The model's weights do not change.

Source: the three uses of attention: Vaswani et al. (2017), section 3.2.3,
    https://arxiv.org/abs/1706.03762; ablation of heads: Michel et al. (2019), section
    2, https://arxiv.org/abs/1905.10650; activation patching: Vig et al. (2020),
    section 3, https://arxiv.org/abs/2004.12265, and Meng et al. (2022), section 2,
    https://arxiv.org/abs/2202.05262
Axes: B batch, L layers, H heads, S source symbols, T positions, C model width,
    D = C / H width of a head's output
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, merge_heads, split_heads
from attnbook.models.recurrent import EncoderDecoder

Head = tuple[int, int]  # layer and head, both from 0
Edit = Callable[[Tensor], Tensor]  # from a head's output (B, T, D) to another


class TransformerMaps(NamedTuple):
    """The weights before dropout of self-attentions, and of attention to the source."""

    encoder: Float[Tensor, "B L H S S"]
    decoder: Float[Tensor, "B L H T T"]
    cross: Float[Tensor, "B L H T S"]


@contextmanager
def _hook_inputs(
    hooks: Iterable[tuple[nn.Module, Callable[[Tensor], Tensor | None]]],
) -> Iterator[None]:
    """Call functions with the inputs of modules; what they return replaces it."""

    def wrap(function: Callable[[Tensor], Tensor | None]) -> Callable[..., Any]:
        return lambda module, given: function(given[0])

    handles = [x.register_forward_pre_hook(wrap(function)) for x, function in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def record_weights(attentions: Iterable[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Collect the weights of attentions, in the order in which they run.

    Each attention passes its weights to a dropout module, whose input is recorded.
    """
    recorded: list[Tensor] = []
    with _hook_inputs((x.drop, recorded.append) for x in attentions):
        yield recorded


@torch.no_grad()
def collect_maps(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    previous: Int[Tensor, "B T"],
) -> TransformerMaps:
    """Return the weights of all attentions of a Transformer, run on these inputs.

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
    with (
        record_weights([block.attention for block in encoders]) as encoder,
        record_weights([block.attention for block in decoders]) as decoder,
        record_weights([block.cross for block in decoders]) as cross,
    ):
        model(source, lengths, previous)
    return TransformerMaps(*(torch.stack(x, dim=1) for x in (encoder, decoder, cross)))


def find_attention_layers(model: nn.Module) -> dict[str, Any]:
    """Return the attention layers of a model by name, in its order; at least one."""
    layers = {
        name: module
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


def _check_heads(layers: Sequence[Any], heads: Iterable[Head]) -> None:
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


def _check_layers(model: nn.Module, given: Sequence[Any]) -> None:
    count = len(find_attention_layers(model))
    if len(given) != count:
        raise ValueError(
            f"{len(given)} layers are given, but the model has {count} attention layers"
        )


def _edit_outputs(
    merged: Float[Tensor, "B T C"], heads: int, edits: Mapping[int, Edit]
) -> Float[Tensor, "B T C"]:
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
    """Change the outputs of some heads while the model runs in the `with` block.

    An edit is a function of the head's output (B, T, D), before the output projection.

    Raises:
        ValueError: if the model does not have a head, or if an edit returns
            another shape.
    """
    layers = [*find_attention_layers(model).values()]
    _check_heads(layers, edits)
    of_layers: dict[int, dict[int, Edit]] = {}
    for (layer, head), edit in edits.items():
        of_layers.setdefault(layer, {})[head] = edit

    def make_hook(layer: int) -> Edit:
        return lambda x: _edit_outputs(x, layers[layer].heads, of_layers[layer])

    with _hook_inputs((layers[i].output, make_hook(i)) for i in of_layers):
        yield


@contextmanager
def record_heads(model: nn.Module) -> Iterator[list[list[Tensor]]]:
    """Keep the outputs of all heads while the model runs in the `with` block.

    For each attention layer they are (B, H, T, D), before the output projection, one
    tensor a call.
    """
    layers = [*find_attention_layers(model).values()]
    kept: list[list[Tensor]] = [[] for _ in layers]

    def make_hook(i: int) -> Callable[[Tensor], None]:
        return lambda x: kept[i].append(split_heads(x.detach(), layers[i].heads))

    with _hook_inputs((layer.output, make_hook(i)) for i, layer in enumerate(layers)):
        yield kept


def ablate_heads(
    model: nn.Module,
    heads: Iterable[Head],
    mean: Sequence[Float[Tensor, "H D"]] | None = None,
) -> AbstractContextManager[None]:
    """Replace the outputs of some heads, by zeros or by each layer's `mean`.

    Raises:
        ValueError: if the model does not have a head, or if `mean` is that of
            another number of layers.
    """
    if mean is not None:
        _check_layers(model, mean)

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

    `recorded` is what `record_heads` kept in the other run, on inputs of the same
    length; its last call counts. Outputs are replaced at the positions, or everywhere.

    Raises:
        ValueError: if the model does not have a head, if the other run's model
            had another number of layers, or its inputs another shape.
    """
    _check_layers(model, recorded)

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
