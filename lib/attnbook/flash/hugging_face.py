"""`flash_attention` as an attention of Hugging Face's transformers.

After `register()`, models take `attn_implementation="attnbook"`.

Chapter: chapters/11_flash_attention
Source: https://huggingface.co/docs/transformers/attention_interface
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

from typing import Any

import torch
from torch import Tensor, nn

from attnbook.flash import flash_attention

NAME = "attnbook"


def register(name: str = NAME) -> None:
    """Make the name known to transformers, which must be installed."""
    from transformers import AttentionInterface
    from transformers.masking_utils import (
        ALL_MASK_ATTENTION_FUNCTIONS,
        AttentionMaskInterface,
    )

    AttentionInterface.register(name, attention)
    # Lengths of padded texts are all that is needed, as in FlashAttention.
    AttentionMaskInterface.register(
        name, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]
    )


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
    **more: Any,
) -> tuple[Tensor, None]:
    """Return the output as (B, T, H, E), and no weights.

    Args:
        module: the layer that asks; it knows whether it is causal.
        query: what is asked, (B, H, T, D).
        key: what it is compared with, (B, G, S, D).
        value: what is averaged, (B, G, S, E).
        attention_mask: (B, S), not 0 where a key is no padding.
        scaling: factor of the products.
        dropout: of the weights; only 0 is taken.
        is_causal: whether no query sees a later key; the module's word unless
            given.
        sliding_window: keys that a query sees, its own included.
        softcap: of the scores.
        more: what other models pass on.

    Raises:
        ValueError: if something is asked that `flash_attention` does not do.
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
            f"a window of {sliding_window} looks back, but the attention is "
            "not causal"
        )
    if more.get("s_aux") is not None:
        raise ValueError("learned sinks (s_aux) are not among the options")
    output = flash_attention(
        query,
        key,
        value,
        causal=causal,
        window=sliding_window,
        key_lengths=lengths(attention_mask, key.shape[2]),
        softcap=softcap,
        scale=scaling,
    )
    return output.transpose(1, 2).contiguous(), None


def lengths(mask: Tensor | None, keys: int) -> Tensor | None:
    """Return how many keys of each text are no padding.

    Raises:
        ValueError: if the mask is not one number a key, or the padding does
            not stand at the end.
    """
    if mask is None:
        return None
    if mask.ndim != 2 or mask.shape[1] != keys:
        raise ValueError(
            f"a mask must be one number a key, (batch, {keys}), but is "
            f"{tuple(mask.shape)}"
        )
    kept = mask.bool()
    found = kept.sum(dim=1)
    expected = torch.arange(keys, device=mask.device) < found[:, None]
    if not torch.equal(kept, expected):
        row = int((kept != expected).any(dim=1).nonzero()[0])
        raise ValueError(
            f"padding must stand at the end (padding_side='right'), but text "
            f"{row} of {int(found[row])} tokens has some before its last"
        )
    return found
