"""`flash_attention` as an attention implementation in Hugging Face.

After `register()`, models take `attn_implementation="attnbook"`.

Source: https://huggingface.co/docs/transformers/attention_interface
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

from typing import Any

import torch
from torch import Tensor, nn

from attnbook.flash import apply_sinks, flash_attention_with_lse

NAME = "attnbook"


def register(name: str = NAME) -> None:
    """Register this attention with transformers, which must be installed."""
    from transformers import AttentionInterface
    from transformers.masking_utils import (
        ALL_MASK_ATTENTION_FUNCTIONS,
        AttentionMaskInterface,
    )

    flash_mask = ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]

    def padding_mask(*given: Any, **more: Any) -> Tensor | None:
        """Make the mask of FlashAttention, (B, S), once for all layers."""
        mask = flash_mask(*given, **more)
        if mask is not None and not torch.compiler.is_compiling():
            require_padding_at_the_end(mask)
        return mask

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, padding_mask)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Return the output as (B, T, H, E), and no weights.

    Query, key and value are (B, H, T, D), (B, G, S, D) and (B, G, S, E).

    Args:
        module: the attention layer; its `is_causal` holds unless it is given.
        attention_mask: (B, S), 0 where a key is padding, which must be at the
            end of a sequence. Models check it once before their first layer;
            here it is checked where it is on the CPU, because reading it from
            a GPU would wait in every layer.
        scaling: factor of the products.
        dropout: of the weights; only 0 is taken.
        sliding_window: number of keys that a query attends to, its own
            included.
        s_aux: the learned sink of each head, (H,).
        more: arguments of other models.

    Raises:
        ValueError: if an option is given that `flash_attention` does not have.
    """
    causal = getattr(module, "is_causal", True)
    causal = causal if is_causal is None else is_causal
    if dropout:
        raise ValueError(
            f"dropout of weights must be 0 here, not {dropout}: call "
            "model.eval(), or set attention_dropout to 0"
        )
    if sliding_window and not causal:
        raise ValueError(
            f"a window of {sliding_window} looks back, but the attention is not causal"
        )
    output, lse = flash_attention_with_lse(
        query,
        key,
        value,
        causal=causal,
        window=sliding_window,
        key_lengths=read_lengths(attention_mask, key.shape[2]),
        softcap=softcap,
        scale=scaling,
    )
    if s_aux is not None:
        output = apply_sinks(output, lse, s_aux)
    return output.transpose(1, 2).contiguous(), None


def read_lengths(mask: Tensor | None, keys: int) -> Tensor | None:
    """Return how many keys of each sequence are not padding, or raise ValueError."""
    if mask is None:
        return None
    if mask.ndim != 2 or mask.shape[1] != keys:
        raise ValueError(
            f"a mask must be one number for each key, (batch, {keys}), but is "
            f"{tuple(mask.shape)}"
        )
    if mask.device.type == "cpu":
        require_padding_at_the_end(mask)
    return mask.bool().sum(dim=1)


def require_padding_at_the_end(mask: Tensor) -> None:
    """Raise ValueError if padding of a mask (B, S) is not at the end; reads it."""
    kept = mask.bool()
    found = kept.sum(dim=1)
    columns = torch.arange(mask.shape[1], device=mask.device)
    misplaced = (kept != (columns < found[:, None])).any(dim=1)
    if misplaced.any():
        row = int(misplaced.nonzero()[0])
        raise ValueError(
            "padding must be at the end (padding_side='right'), but sequence "
            f"{row} of {int(found[row])} tokens has some before its last"
        )
