"""No function makes a tensor on a device of its own choice.

Each case runs twice. With inputs on the CPU, PyTorch's default device is "meta":
a tensor that is made without `device=` meets the inputs there, or is returned.
With inputs on "meta", which has no values, the default is the CPU.
"""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from attnbook import diagnose, flash, masks
from attnbook.attention import (
    blocked,
    delta_rule,
    graph,
    linear,
    multi_head,
    recurrent,
    self_attention,
    sparse,
    tiled,
)
from attnbook.attention import scaled_dot_product as scaled
from attnbook.decoding import generation
from attnbook.diagnose import heads
from attnbook.flash.decoding import attend_paged
from attnbook.masks import layouts, rules
from attnbook.models import (
    attention_only,
    listen_attend_spell,
    lookup_models,
    modern_decoder,
    transformer,
    vision,
    whisper,
)
from attnbook.models import recurrent as decoders
from attnbook.positions import absolute, biases, rotary

B, H, T, S, D, C, V = 2, 2, 3, 5, 4, 8, 11
CPU, META = torch.device("cpu"), torch.device("meta")
RNG = torch.Generator().manual_seed(0)


def draw(*shape):
    return torch.randn(*shape, generator=RNG)


Q, K, U, K_T, U_T = (
    draw(B, H, n, w) for n, w in ((T, D), (S, D), (S, 6), (T, D), (T, 6))
)
X, M, W, BETA = draw(B, T, C), draw(B, S, C), draw(C, C), draw(B, H, T).sigmoid()
IDS, LENGTHS = torch.randint(4, V, (B, S), generator=RNG), torch.tensor([5, 3])
MASK, WEIGHTS = torch.ones(T, S).tril(1).bool(), draw(B, H, S, S).softmax(-1)
EDGES, AT = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.arange(T)
TABLE = torch.tensor([[5, 0, 2], [3, 1, 0]])
PAGES = draw(6, H, 2, D), draw(6, H, 2, 6), TABLE, LENGTHS
SIZE, SEQUENCES = transformer.Size(C, H, 10, 2), (IDS, LENGTHS, IDS[:, :T])

# A function and its inputs.
CALLS = {
    "rollout": (diagnose.attention_rollout, WEIGHTS),
    "attend": (scaled.attend, Q, K, U, MASK),
    "window": (blocked.attend_window, Q, K, U, 2, 2),
    "tiles": (tiled.attend_tiled, Q, K, U, 2),
    "linear, chunks": (linear.attend_linear_chunked, Q, K_T, U_T),
    "linear, step by step": (linear.attend_linear_recurrent, Q, K_T, U_T),
    "top keys": (sparse.select_top_keys, Q @ K.mT, MASK, 2),
    "Gaussian window": (recurrent.gaussian_window, draw(B, T), S, 1.5),
    "self-attention": (self_attention.causal_self_attention, X, W, W, W),
    "flash": (flash.flash_attention, Q, K, U),
    "pages": (attend_paged, Q[:, :, :1], *PAGES),
    "document mask": (masks.document, IDS),
    "reset positions": (masks.reset_positions, IDS),
    "receptive field": (layouts.receptive_field, MASK[:, :T], 2),
    "rotary": (rotary.rotate, Q, AT),
    "T5 bucket": (biases.t5_bucket, AT - 2),
    "induction": (diagnose.score_induction, WEIGHTS[0], IDS[0]),
    "uniform weights": (heads.uniform_causal_weights, T, "device"),
    "window mask": (masks.window, T, S, 2, "device"),
    "layout": (layouts.cover_rule, rules.window(4, 6, 2), 4, 6, 2, "device"),
    "sinusoids": (absolute.sinusoidal, T, C, 10000.0, "device"),
    "distances": (biases.distances, T, S, "device"),
}
# What makes a model, and the model's inputs.
MODULES = {
    "sinusoidal": (lambda: absolute.SinusoidalEncoding(C), AT),
    "Shaw": (lambda: biases.ShawEncoding(D, 2), Q, S),
    "ALiBi": (lambda: biases.AlibiBias(H), T, S),
    "T5": (lambda: biases.T5Bias(H), T, S),
    "language model": (lambda: transformer.LanguageModel(V, SIZE), IDS),
    "modern": (lambda: modern_decoder.ModernLanguageModel(V, C, H, 1, 9, 2), IDS),
    "lookup": (lambda: lookup_models.LookupModel(V, V, V, D, 6), IDS, IDS, IDS),
    "Whisper": (
        lambda: whisper.Whisper(whisper.WhisperConfig(6, C, H, 10, 2, S, S, V)),
        draw(B, 6, 2 * S),
        IDS,
    ),
}


def seq2seq(decoder, *sizes, **more):
    made = decoder(V, 6, *sizes, **more)
    return decoders.EncoderDecoder(decoders.Encoder(V, 6, 4), made)


def luong_model(attention, **more):
    return seq2seq(decoders.LuongDecoder, 8, 8, attention, **more)


def score():
    return recurrent.GeneralScore(8, 8)


# What also reads values, which "meta" does not have.
READ_CALLS = {
    "context": (recurrent.context, X @ M.mT, M, LENGTHS),
    "padding": (masks.padding, LENGTHS, S),
    "delta rule": (delta_rule.attend_delta_recurrent, Q, K_T, U_T, BETA),
    "delta rule, chunks": (delta_rule.attend_delta_chunked, Q, K_T, U_T, BETA),
    "GAT": (graph.attend_graph, M[0], EDGES, draw(H, D, C), draw(H, 2, D)),
    "mass in boxes": (
        vision.measure_mass_in_boxes,
        WEIGHTS[0],
        torch.tensor([[0, 1, 5, 6], [2, 2, 3, 4]]),
        6,
    ),
    "flash, lengths": (
        lambda *x: flash.flash_attention(*x[:3], key_lengths=x[3]),
        *(Q, K, U, LENGTHS),
    ),
}
READ_MODULES = {
    "circuit": (lambda: attention_only.InductionCircuit(V, 9), IDS),
    "vision": (
        lambda: vision.VisionTransformer(6, 3, C, H, 10),
        draw(B, 1, 6, 6),
    ),
    "fixed": (lambda: seq2seq(decoders.Decoder, 7, 8, 3), *SEQUENCES),
    "Bahdanau": (lambda: seq2seq(decoders.BahdanauDecoder, 7, 8, 3, 7), *SEQUENCES),
    "Luong": (
        lambda: luong_model(recurrent.GlobalAttention(score()), feeding=True),
        *SEQUENCES,
    ),
    "monotonic": (
        lambda: luong_model(recurrent.MonotonicAttention(score(), 1)),
        *SEQUENCES,
    ),
    "predictive": (
        lambda: luong_model(recurrent.PredictiveAttention(score(), 8, 7, 2)),
        *SEQUENCES,
    ),
    "memory": (
        lambda: luong_model(multi_head.MultiHeadMemory(8, 8, H)),
        *SEQUENCES,
    ),
    "Transformer": (lambda: transformer.transformer(V, V, SIZE), *SEQUENCES),
    "speller": (
        lambda: listen_attend_spell.make_listen_attend_spell(C, V, 4, 6, 8),
        *(draw(B, 9, C), LENGTHS, IDS),
    ),
}


def run(call, inputs, device):
    """Run a case on a device, forwards and backwards; return what it gives."""

    def move(x):
        if isinstance(x, torch.Tensor):
            return x.to(device)
        return device if x == "device" else x

    found = call(*map(move, inputs))
    tensors = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
    learned = [x.sum() for x in tensors if x.requires_grad]
    if learned:
        sum(learned).backward()
    return tensors


def build(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make().eval()


EVERY = [(name, False) for name in CALLS | READ_CALLS]
EVERY += [(name, True) for name in MODULES | READ_MODULES]


@pytest.mark.parametrize(("name", "is_module"), EVERY)
def test_no_tensor_is_made_on_the_default_device(name, is_module):
    table = MODULES | READ_MODULES if is_module else CALLS | READ_CALLS
    call, *inputs = table[name]
    call = build(call) if is_module else call
    with META:
        found = run(call, inputs, CPU)
    assert found and {x.device.type for x in found} == {"cpu"}
    if name not in READ_CALLS and name not in READ_MODULES:
        call = call.to(META) if is_module else call
        assert {x.device.type for x in run(call, inputs, META)} == {"meta"}


def test_searches_make_their_symbols_where_the_model_is():
    model = build(READ_MODULES["Bahdanau"][0])
    with META:
        found = generation.greedy_search(model, IDS, LENGTHS, 4)
        best = generation.beam_search(model, IDS[0], 3, 4)
    assert all(x.weights.device == CPU for x in (*found, *best))
    assert [x.ids for x in found] == [
        x.ids for x in generation.greedy_search(model, IDS, LENGTHS, 4)
    ]
