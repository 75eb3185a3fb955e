"""Our Whisper equals transformers', and so does the spectrogram.

"Equal" means that the largest difference is below 10⁻⁵ of the largest number.
"""

import numpy as np
import pytest
import torch
from transformers import WhisperConfig as TheirConfig
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.audio_utils import mel_filter_bank

from attnbook.models.pretrained_whisper import NAMES, list_names
from attnbook.models.whisper import (
    RATE,
    Whisper,
    WhisperConfig,
    log_mel_spectrogram,
    make_mel_filters,
)
from precision import measure_difference

B, T, LIMIT = 2, 6, 1e-5
CONFIGS = {
    "2 blocks": WhisperConfig(7, 12, 3, 10, 2, 11, 9, 53),
    "1 head": WhisperConfig(5, 8, 1, 16, 1, 8, 9, 59),
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
# The part of our layer's name -> that of theirs.
PARTS = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
}
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": (
        *("self_attn_layer_norm", "encoder_attn_layer_norm"),
        "final_layer_norm",
    ),
}


def list_layers(blocks):
    """Return our names of the layers that have a weight and a bias or a shift."""
    named = (ours for x, ours in list_names(blocks).items() if x not in NAMES.values())
    return {name.rpartition(".")[0] for ours in named for name in ours}


def name_theirs(layer):
    """Return transformers' name of one of our layers."""
    part, *rest = layer.split(".")
    if rest == ["norm"]:
        return f"{part}.layer_norm"
    block, kind = rest[1], ".".join(rest[2:])
    if kind.startswith("residuals"):
        return f"{part}.layers.{block}.{NORMS[part][int(rest[3])]}"
    return f"{part}.layers.{block}.{PARTS[kind]}"


def copy_weights(theirs, config):
    """Return our model with the weights of transformers' model."""
    state = theirs.model.state_dict()
    ours = {
        "decoder.embed.weight": state["decoder.embed_tokens.weight"],
        "decoder.positions": state["decoder.embed_positions.weight"],
        "encoder.positions": state["encoder.embed_positions.weight"],
    }
    for name, conv in ("first", "conv1"), ("second", "conv2"):
        for kind in ("weight", "bias"):
            ours[f"encoder.{name}.{kind}"] = state[f"encoder.{conv}.{kind}"]
    for layer in list_layers(config.blocks):
        weight = state[f"{name_theirs(layer)}.weight"]
        bias = state.get(f"{name_theirs(layer)}.bias")
        ours[f"{layer}.weight"] = weight
        ours[f"{layer}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias
    model = Whisper(config)
    model.load_state_dict({name: x.clone() for name, x in ours.items()})
    return model.eval()


def build(config):
    """Return transformers' model with uneven weights, and ours with them."""
    settings = TheirConfig(
        vocab_size=config.symbols,
        num_mel_bins=config.mels,
        d_model=config.width,
        encoder_layers=config.blocks,
        decoder_layers=config.blocks,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.hidden,
        decoder_ffn_dim=config.hidden,
        max_source_positions=config.positions,
        max_target_positions=config.tokens,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.width)
        theirs = WhisperForConditionalGeneration(settings).eval()
        with torch.no_grad():
            for p in theirs.parameters():
                p.add_(0.2 * torch.randn_like(p))
    return theirs, copy_weights(theirs, config)


def draw_inputs(config):
    rng = torch.Generator().manual_seed(0)
    frames = 2 * config.positions
    spectrogram = torch.randn(B, config.mels, frames, generator=rng)
    return spectrogram, torch.randint(3, config.symbols, (B, T), generator=rng)


@each_config
def test_logits_and_cross_attention_are_equal(config):
    theirs, ours = build(config)
    spectrogram, ids = draw_inputs(config)
    wanted = theirs(spectrogram, decoder_input_ids=ids, output_attentions=True)
    logits, weights = ours(spectrogram, ids)
    assert measure_difference(logits, wanted.logits) < LIMIT
    assert len(wanted.cross_attentions) == config.blocks
    for i, expected in enumerate(wanted.cross_attentions):
        assert measure_difference(weights[:, i], expected) < LIMIT


@each_config
def test_the_gradients_of_the_weights_are_equal(config):
    theirs, ours = build(config)
    spectrogram, ids = draw_inputs(config)
    rng = torch.Generator().manual_seed(1)
    upstream = torch.randn(B, T, config.symbols, generator=rng)
    ours(spectrogram, ids)[0].backward(upstream)
    theirs(spectrogram, decoder_input_ids=ids).logits.backward(upstream)
    wanted = dict(theirs.model.named_parameters())
    for layer in list_layers(config.blocks):
        found = ours.get_parameter(f"{layer}.weight").grad
        expected = wanted[f"{name_theirs(layer)}.weight"].grad
        assert measure_difference(found, expected) < LIMIT, layer
    table = wanted["decoder.embed_tokens.weight"].grad
    assert measure_difference(ours.decoder.embed.weight.grad, table) < LIMIT


def draw_sound(seconds):
    rng = torch.Generator().manual_seed(2)
    tone = (torch.arange(int(seconds * RATE)) * 0.3).sin()
    return 0.3 * tone + 0.01 * torch.randn(len(tone), generator=rng)


@pytest.mark.parametrize("bands", [80, 128])
def test_the_mel_filters_are_equal(bands):
    wanted = mel_filter_bank(
        201, bands, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney"
    )
    found = make_mel_filters(bands)
    assert (
        measure_difference(found, torch.from_numpy(wanted.T.astype(np.float32))) < LIMIT
    )


@pytest.mark.parametrize("seconds", [0.5, 7.3, 30.0])
def test_the_spectrogram_is_equal(seconds):
    sound = draw_sound(seconds)
    wanted = WhisperFeatureExtractor()(
        sound.numpy(), sampling_rate=RATE, return_tensors="pt"
    ).input_features[0]
    found = log_mel_spectrogram(sound, RATE)
    # Theirs is computed in double precision; the logarithm of a small power
    # turns its relative error into an absolute one.
    assert (found - wanted).abs().max() < 1e-3
