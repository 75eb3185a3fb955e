"""Every model and function works on the device of its inputs, GPU or not.

Each case runs on the CPU, on PyTorch's device "meta" and on the stand-in of
`standin.py`: forwards, and backwards where there is a gradient. The functions
are collected from the package; one that no case runs fails a test.
"""

import importlib
import inspect
import math
import pkgutil
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import attnbook
from attnbook import diagnose, flash, masks
from attnbook.attention import (
    additive,
    additive_blocks,
    block_sparse,
    blocked,
    decay,
    delta_rule,
    feature_maps,
    gated_cross_attention,
    gradient,
    graph,
    grouped_query,
    kernel_smoothing,
    key_selection,
    lightning_indexer,
    linear,
    linformer,
    local,
    luong,
    multi_head,
    multi_head_memory,
    online_softmax,
    query_chunks,
    scaled_dot_product,
    self_attention,
    space_time,
    tiled,
)
from attnbook.data import emoji, graph_tasks, help_graph, moving_digits, t_maze
from attnbook.diagnose import (
    behavior,
    explanations,
    heads,
    intervals,
    neighborhoods,
    reference,
)
from attnbook.flash.decoding import attend_paged, attend_split_kv
from attnbook.masks import (
    conventions,
    inspection,
    layouts,
    packing,
    receptive_field,
    rules,
)
from attnbook.models import (
    associative_recall,
    attention_classifier,
    attention_maps,
    attention_only,
    bahdanau,
    convolutional,
    devices,
    encoder,
    encoder_decoder,
    from_pytorch,
    graph_network,
    head_edits,
    image_text,
    induction_circuit,
    language_model,
    layer_norm,
    listen_attend_spell,
    log_mel,
    lookup_model,
    luong_decoder,
    memory_agent,
    modern_block,
    modern_decoder,
    patches,
    pretrained,
    relation_model,
    sequence_layers,
    sequence_mixers,
    spatial_attention,
    stabilized_attention,
    transformer,
    transformer_blocks,
    video_transformer,
    vision_transformer,
    whisper,
)
from attnbook.positions import absolute, biases, context_extension, rotary, shaw
from attnbook.profiling import allocations, exponentials, roofline, tracing
from attnbook.training import associative_recall as recall_training
from attnbook.training import (
    checkpoints,
    deception,
    loop,
    losses,
    metrics,
    search,
)
from attnbook.training import t_maze as t_maze_training
from standin import CPU, META, PLACE, STANDIN, WRONG, TrialDevice

pytestmark = [
    pytest.mark.long,
    pytest.mark.precision,  # the shapes are other tests' business
]

B, H, T, S, D, E, C, A, V = 2, 2, 3, 5, 4, 6, 8, 7, 11
RNG = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=RNG)


def whole(high, *shape, low=4):
    return torch.randint(low, high, shape, generator=RNG)


QUERY, KEY, VALUE = drawn(B, H, T, D), drawn(B, H, S, D), drawn(B, H, S, E)
X, MEMORY = drawn(B, T, C), drawn(B, S, C)
SOURCE, PREVIOUS = whole(V, B, S), whole(V, B, T)
LENGTHS = torch.tensor([5, 3])
MASK = torch.tensor([[True] * 5, [True, False] * 2 + [False], [True] * 5])
PAIRS = [([4 + i % 5, 5, 6], [7, 4 + i % 3]) for i in range(3)]
SIZE = transformer.Size(C, H, 10, 2)

# Name of a case -> (function of a place, whether it reads values).
CASES = {}


def case(function=None, reads=False):
    """Register a case; one that reads values does not run on "meta"."""
    if function is None:
        return lambda function: case(function, reads)
    CASES[function.__name__] = function, reads
    return function


def seq2seq(decoder, read=None):
    read = read or encoder.Encoder(V, 6, 4)
    return encoder_decoder.EncoderDecoder(read, decoder)


def looking(attention, **more):
    return luong_decoder.LuongDecoder(V, 6, 7, 8, attention, **more)


def score(kind):
    return {
        "dot": lambda: luong.DotScore(8, 8),
        "general": lambda: luong.GeneralScore(7, 8),
        "concat": lambda: luong.ConcatScore(7, 8, A),
        "location": lambda: luong.LocationScore(7, S),
    }[kind]()


SEQ2SEQ = {
    "fixed": lambda: seq2seq(encoder_decoder.Decoder(V, 6, 7, 8, 3)),
    "fixed, LSTM": lambda: seq2seq(
        encoder_decoder.Decoder(V, 6, 7, 8, 3, nn.LSTM, 0.5),
        encoder.Encoder(V, 6, 8, 1, nn.LSTM),
    ),
    "Bahdanau": lambda: seq2seq(bahdanau.BahdanauDecoder(V, 6, 7, 8, 3, A)),
    "Bahdanau, LSTM": lambda: seq2seq(
        bahdanau.BahdanauDecoder(V, 6, 7, 8, 3, A, nn.LSTM)
    ),
    "Luong, dot": lambda: seq2seq(
        luong_decoder.LuongDecoder(V, 6, 8, 8, local.GlobalAttention(score("dot")))
    ),
    **{
        f"Luong, {kind}": lambda kind=kind: seq2seq(
            looking(local.GlobalAttention(score(kind)))
        )
        for kind in ("general", "concat", "location")
    },
    "Luong, fed": lambda: seq2seq(
        looking(local.GlobalAttention(score("general")), feeding=True)
    ),
    "Luong, monotonic": lambda: seq2seq(
        looking(local.MonotonicAttention(score("general"), 1))
    ),
    "Luong, predictive": lambda: seq2seq(
        looking(local.PredictiveAttention(score("general"), 7, A, 2))
    ),
    "Luong, heads": lambda: seq2seq(
        luong_decoder.LuongDecoder(
            V, 6, 8, 8, multi_head_memory.MultiHeadMemory(8, 8, H)
        )
    ),
    "Transformer": lambda: transformer.transformer(V, V, SIZE),
    "Transformer, post-norm": lambda: transformer.transformer(
        V,
        V,
        transformer.Size(C, H, 10, 1, residual=transformer_blocks.PostNorm),
    ),
}


def made(factory):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return factory().eval()


for name, factory in SEQ2SEQ.items():

    def translating(p, factory=factory):
        model = p(made(factory))
        message = model(*p((SOURCE, LENGTHS, PREVIOUS)))
        return loop.compute_symbol_loss(message.logits, p(PREVIOUS)), *message

    def decoding(p, factory=factory):
        model = p(made(factory))
        source, lengths = p((SOURCE, LENGTHS))
        answers = search.greedy_search(model, source, lengths, 4)
        answers += search.beam_search(model, source[0], 3, 4, length_power=1.0)
        for found in answers:
            assert found.weights is None or found.weights.device.type == "cpu"
        return [(found.ids, found.score) for found in answers]

    def stepping(p, factory=factory):
        model = p(made(factory))
        source, lengths, previous = p((SOURCE, LENGTHS, PREVIOUS))
        memory = model.encoder(source, lengths)
        state = model.decoder.start(memory)
        return model.decoder.step(previous[:, 0], state, memory)

    def epochs(p, factory=factory):
        model = p(made(factory))
        recipe = loop.Recipe(1, size=3)
        trainer = loop.Trainer(model, PAIRS, PAIRS[:3], recipe)
        history = trainer.run(progress=False)
        weights = [*model.state_dict().values()]
        return [(h["train_loss"], h["valid_loss"]) for h in history], weights

    CASES[f"forward: {name}"] = translating, False
    CASES[f"step: {name}"] = stepping, False
    CASES[f"search: {name}"] = decoding, True
    CASES[f"training: {name}"] = epochs, True

for method in attention_only.METHODS:

    def reading(p, method=method):
        model = p(made(lambda: attention_only.AttentionOnlyTransformer(V, method, 9)))
        if method == "rope":
            steps = context_extension.scale_yarn(attention_only.HEAD, 2, 9)
            model.rescale(steps, context_extension.yarn_attention_factor(2))
        return model(p(PREVIOUS))

    CASES[f"AttentionOnlyTransformer: {method}"] = reading, False


for name, factory in sequence_layers.SEQUENCE_LAYERS.items():

    def layering(p, factory=factory):
        return p(made(lambda: factory(C)))(p(X))

    CASES[f"sequence layer: {name}"] = layering, False


@case
def every_attention_function(p):
    q, k, v, mask = p((QUERY, KEY, VALUE, MASK))
    scores = q @ k.mT
    return (
        scaled_dot_product.attend(q, k, v, mask),
        scaled_dot_product.attention_weights(q, k, bias=scores),
        kernel_smoothing.nadaraya_watson(q, k, v, 0.7, mask),
        query_chunks.attend_in_query_chunks(q, k, v, 2),
        blocked.attend_window(q, k, v, 2, 2),
        tiled.attend_tiled(q, k, v, 2),
        grouped_query.grouped_query(q, k[:, :1], v[:, :1], mask),
        online_softmax.online_softmax(scores.split(2, -1)),
        online_softmax.merge(
            v[..., :T, :], scores[..., 0], v[..., 2:, :], scores[..., 1]
        ),
        stabilized_attention.soft_cap(scores, 2.0),
        diagnose.entropy(scores.softmax(-1)),
        diagnose.normalized_entropy(scores.softmax(-1), mask),
        diagnose.head_similarity(scores.softmax(-1)),
        diagnose.attention_rollout((q @ q.mT).softmax(-1)),
        reference.compute_unmasked_weights(q, k),
        reference.attend_with_scale(lambda q: 2.0)(q, k, v, mask),
        reference.attend_uniformly_if_empty(q, k, v, mask),
    )


@case
def scores_of_heads(p):
    ids, length = p(SOURCE)[0], SOURCE.shape[1]
    weights = heads.uniform_causal_weights(length, ids.device)
    return (
        diagnose.score_previous_token(weights),
        diagnose.score_first_token(weights),
        diagnose.score_duplicate_token(weights, ids),
        diagnose.score_induction(weights, ids),
    )


@case
def attention_over_space_and_time(p):
    clip = [p(drawn(B, H, T, S, width)) for width in (D, D, E)]
    found = [
        space_time.attend_joint(*clip),
        space_time.attend_over_space(*clip),
        space_time.attend_over_time(*clip),
        space_time.same_frame_mask(T, S, p.device),
        space_time.same_place_mask(T, S, p.device),
    ]
    x = p(drawn(B, T, S, C))
    for layer in (*video_transformer.JOINT, *video_transformer.FACTORIZED):
        found += p(made(partial(layer, C, H)))(x, need_weights=True)
    return found


def draw_clips():
    """Return clips of both tasks, on the CPU."""
    rng = torch.Generator().manual_seed(2)
    pixels = torch.randint(256, (S, 6, 6), generator=rng, dtype=torch.uint8)
    digits = moving_digits.shrink_digits(pixels, 2)
    labels = torch.arange(S)
    return (
        moving_digits.draw_which_digit(digits, labels, B, rng, T, 8, 1),
        moving_digits.draw_which_direction(digits, B, rng, T, 8),
    )


@case
def clips_of_moving_digits(p):
    clips = draw_clips()[0].to(p.device)
    start, velocity = clips.position[:, 0], clips.position[:, 1]
    rng = torch.Generator().manual_seed(2)
    digits = clips.frames[:, :, :3, :3]
    return (
        moving_digits.bounce(start, velocity, T, 5),
        moving_digits.wrap(start, velocity, T, 8),
        moving_digits.travel(start, velocity, T),
        moving_digits.render_clips(digits, clips.position, 8),
        moving_digits.shuffle_pixels(digits, rng),
        moving_digits.shrink_digits((255 * clips.frames[:, 0]).to(torch.uint8), 2),
    )


def build_clip_classifier(pooling):
    """Return a classifier of the clips that `draw_clips` returns first."""
    encode = video_transformer.FrameEncoder(8, C, 2)
    return video_transformer.ClipClassifier(encode, pooling(), C, V)


@case
def classes_of_clips(p):
    frames, others = (x.frames.to(p.device) for x in draw_clips())
    found = []
    for pooling in (
        partial(video_transformer.TemporalAttentionPooling, C),
        video_transformer.MeanPooling,
        video_transformer.LastFrame,
    ):
        found.append(p(made(partial(build_clip_classifier, pooling)))(frames))
    for kinds in (video_transformer.JOINT, video_transformer.FACTORIZED):
        sizes = T, 8, 4, 4, kinds, C, H
        model = p(made(partial(video_transformer.VideoTransformer, *sizes)))
        found.append(model(others))
    return found


@case
def patches_that_are_cut_and_joined(p):
    cut = patches.cut_patches(p(drawn(B, 3, 4, 6)), 2)
    return cut, patches.join_patches(cut, 4, 6, 2)


@case
def vision_transformers_with_and_without_positions(p):
    images = p(drawn(B, 1, 6, 6))
    sizes = {"size": 6, "patch": 3, "width": C, "heads": H, "hidden": 10}
    ordered, unordered = (
        p(made(lambda x=x: vision_transformer.VisionTransformer(**sizes, encoding=x)))
        for x in (absolute.LearnedEncoding, vision_transformer.NoEncoding)
    )
    return ordered(images), unordered(images)


@case
def a_convolutional_network(p):
    return p(made(lambda: convolutional.FlatClassifier((1, 2, 3), (2, 1), 6)))(
        p(drawn(B, 1, 6, 6))
    )


def pool(p, pooling):
    return p(
        made(
            lambda: spatial_attention.PooledClassifier(
                convolutional.ConvolutionalFeatures((1, D), (2,)), pooling
            )
        )
    )


@case
def places_that_are_pooled(p):
    images = p(drawn(B, 1, 6, 6))
    attention, mean, largest = (
        pool(p, x)
        for x in (
            spatial_attention.SpatialAttentionPooling,
            spatial_attention.MeanPooling,
            spatial_attention.MaxPooling,
        )
    )
    places = attention.read_places(images)
    return (
        *(attention(images), mean(images), largest(images)),
        attention.pooling.compute_weights(places),
        spatial_attention.map_class(mean, images, p(whole(9, B))),
    )


@case(reads=True)
def the_mass_of_a_map_in_boxes(p):
    boxes = p(torch.tensor([[0, 1, 5, 6], [2, 2, 3, 4]]))
    weights = p(drawn(B, 3, 3)).softmax(-1)
    return spatial_attention.measure_mass_in_boxes(weights, boxes, 6)


@case
def an_induction_circuit(p):
    return p(induction_circuit.InductionCircuit(V, T))(p(PREVIOUS))


@case
def changed_heads(p):
    model = p(made(lambda: transformer_blocks.EncoderBlock(C, H, 10)))
    x = p(X)
    with head_edits.record_heads(model) as outputs:
        model(x)
    mean = head_edits.average_outputs(outputs)
    found = []
    for editing in (
        head_edits.ablate_heads(model, [(0, 1)]),
        head_edits.ablate_heads(model, [(0, 0)], mean),
        head_edits.patch_heads(model, [(0, 1)], outputs, [0, 2]),
    ):
        with editing:
            found.append(model(x))
    return found


@case
def linear_attention(p):
    q, k, v = p((QUERY, KEY[..., :T, :], VALUE[..., :T, :]))
    found = linear.attend_linear_chunked(q, k, v, chunk=2)
    directions = feature_maps.draw_random_features(D, 3, 0).to(q.device)
    return (
        *found,
        *linear.attend_linear_recurrent(q, k, v, *found[1:]),
        linear.attend_linear(q, k, v),
        linear.attend_linear_bidirectional(
            q, k, v, features=feature_maps.taylor_features
        ),
        feature_maps.random_features(q, directions),
    )


@case
def linformer_and_its_function(p):
    model = p(made(lambda: linformer.LinformerAttention(C, H, S, 2)))
    matrices = p((drawn(2, S), drawn(2, S)))
    return (
        model(p(MEMORY)),
        linformer.attend_linformer(*p((QUERY, KEY, VALUE)), *matrices),
    )


@case
def gated_attention_to_an_image(p):
    layer = p(made(lambda: gated_cross_attention.GatedCrossAttention(C, H, E)))
    text, image = p((X, drawn(B, S, E)))
    matrices = p((drawn(D, C), drawn(D, E), drawn(C, E)))
    gate = p(torch.tensor(0.5))
    return (
        *layer(text, image),
        gated_cross_attention.gated_cross_attention(text, image, *matrices, gate),
    )


@case(reads=True)
def graph_attention(p):
    features, edges = p((drawn(S, C), whole(S, 2, 7, low=0)))
    weight, half, a = p((drawn(H, D, C), drawn(H, D, C), drawn(H, 2, D)))
    return (
        graph.attend_graph(features, edges, weight, a),
        graph.attend_graph_v2(features, edges, weight, half, a[:, 0]),
    )


@case(reads=True)
def networks_on_graphs(p):
    features, links = p((drawn(S, C), whole(S, 2, 4, low=0)))
    edges = graph_network.join_neighbors(links, S)
    selves = graph_network.join_selves(links, S)
    found = []
    for layer in graph_network.NEIGHBOR_LAYERS.values():
        model = p(made(lambda layer=layer: graph_network.GraphNetwork(layer, C, 3)))
        found += model(features, edges), model(features, edges, selves)
        found.append(model.first.compute_weights(features, edges))
        found.append(model.first(features, edges))
    return found


@case(reads=True)
def weights_in_neighborhoods(p):
    weights, target = p((drawn(4).exp(), torch.tensor([0, 2, 2, 0])))
    rng = torch.Generator().manual_seed(2)
    right = weights > 1
    return (
        neighborhoods.measure_mass(weights, target, right, 3),
        neighborhoods.shuffle_within_targets(weights, target, rng),
    )


@case(reads=True)
def graphs_of_tasks(p):
    rng = torch.Generator().manual_seed(2)
    noisy = graph_tasks.draw_noisy_graph(3, 2, 2, rng).to(p.device)
    lookup = graph_tasks.draw_lookup(2, 3, rng).to(p.device)
    labels = p(torch.tensor([0, 1, 1, 0]))
    return *noisy, *lookup, help_graph.draw_labeled(labels, 1, rng)


@case
def parts_of_graph_attention(p):
    rows, edges = p((drawn(H, S, D), whole(S, 2, 7, low=0)))
    a, target = p(drawn(H, 2, D)), edges[1]
    scores = graph.score_static(rows, edges, a)
    weights = graph.softmax_by_target(scores, target, S)
    layers = [
        p(made(lambda layer=layer: layer(D, 3, H)))(rows[0], edges)
        for layer in graph_network.NEIGHBOR_LAYERS.values()
    ]
    return (
        *layers,
        graph_network.join_selves(edges, S),
        neighborhoods.measure_mass(weights[0], target, scores[0] > 0, S),
        graph.score_dynamic(rows, rows, edges, a[:, 0]),
        graph.average_neighbors(rows, edges, weights),
    )


@case
def an_image_and_its_name(p):
    images, names = p((drawn(B, 3, 48, 48), whole(V, B, 2)))
    model = made(
        lambda: image_text.ContrastiveModel(image_text.ConvolutionEncoder(C), V, C)
    )
    reader = made(
        lambda: image_text.GridReader(
            model.encoder, model.embedding, 4, image_text.UniformAttention
        )
    )
    similarity = p(model)(images, names)
    reader = p(reader)
    return (
        image_text.contrastive_loss(similarity),
        image_text.rank_pairs(similarity),
        *reader(reader.read_image(images), names),
        emoji.mark_cell(names[:, 0], 6),
        emoji.pad_emoji(images[..., :20, :20]),
    )


@case(reads=True)
def the_delta_rule(p):
    q, k, v = p((QUERY, KEY[..., :T, :], VALUE[..., :T, :]))
    beta, log_decay = p((drawn(B, H, T).sigmoid(), -drawn(B, H, T, D).exp()))
    one = (x[:, :, 0] for x in (q, k, v, beta))
    found = delta_rule.attend_delta_chunked(q, k, v, beta, log_decay, chunk=2)
    return (
        *found,
        *delta_rule.attend_delta_recurrent(q, k, v, beta, state=found.state),
        *delta_rule.step_delta(found.state, *one),
    )


@case
def decaying_products(p):
    q, rate = p((QUERY, -drawn(B, H, T, D).exp()))
    return (
        decay.sum_decayed_products(q, q, rate),
        decay.decay_chunk(q, rate),
        decay.compute_decays(rate[..., :1]),
    )


@case
def selected_keys_and_blocks(p):
    q, k, mask = p((QUERY, KEY[..., :4, :], MASK[:, :4]))
    scores = key_selection.score_mean_keys(q, k, 2)
    return (
        key_selection.select_top_keys(q @ k.mT, mask, 2),
        key_selection.sum_over_blocks(q @ k.mT, 2),
        key_selection.select_top_blocks(scores, mask, 1, 2),
    )


@case
def an_indexer_and_its_loss(p):
    indexer = p(made(lambda: lightning_indexer.LightningIndexer(C, 2, 4)))
    mask = p(torch.ones(T, T).tril().bool())
    scores, weights = indexer(p(X)), p(drawn(B, H, T, T).softmax(-1))
    return lightning_indexer.compute_indexer_loss(scores, weights, mask)


def run_mixers(p, methods):
    return [
        p(made(lambda x=x: sequence_mixers.MixerModel(V, x, C, H, 16, 1)))(p(PREVIOUS))
        for x in methods
    ]


FORGETTING = ("delta", "gated delta")
MIXERS = sequence_mixers.MIXERS | sequence_mixers.MORE_MIXERS


@case
def small_models_with_each_mixer(p):
    return run_mixers(p, [x for x in MIXERS if x not in FORGETTING])


@case(reads=True)
def small_models_with_the_delta_rule(p):
    return run_mixers(p, FORGETTING)


@case
def gradients_by_hand(p):
    q, k, v, mask = p((QUERY, KEY, VALUE, MASK))
    with torch.no_grad():
        output, lse = tiled.attend_tiled(q, k, v, 2)
        weights = scaled_dot_product.attention_weights(q, k)
        return (
            gradient.attend_gradient(q, k, v, output, mask),
            gradient.jacobian_norm(weights),
            tiled.attend_tiled_gradient(q, k, v, output, lse, output, 2),
        )


@case(reads=True)
def blocks_are_skipped_by_their_mask(p):
    inputs = p((QUERY[..., :2, :], KEY[..., :4, :], VALUE[..., :4, :]))
    layout, rule = p(torch.tensor([[True, True]])), rules.window(2, 4, 2)
    return (
        blocked.attend_in_blocks(*p((QUERY, KEY, VALUE, MASK)), rows=2),
        block_sparse.attend_block_sparse(*inputs, layout, rule),
    )


@case
def additive_and_multiplicative_scores(p):
    q, k = p((X, MEMORY))
    W, square, v = p((drawn(A, 2 * C), drawn(C, C), drawn(A)))
    first, second = W.chunk(2, 1)
    with torch.no_grad():
        blocks = additive_blocks.additive_scores_in_blocks(q, k, first, second, v, 2)
    return (
        additive.additive_scores(q, k, first, second, v),
        additive.context(q @ k.mT, k, p(LENGTHS)),
        luong.dot_scores(q, k),
        luong.general_scores(q, k, square),
        luong.concat_scores(q, k, W, v),
        luong.location_scores(q, p(drawn(S - 1, C)), S),
        p(luong.ConcatScore(C, C, A)).matrix.shape,
        blocks,
    )


@case
def windows_of_local_attention(p):
    centre = p(drawn(B, T))
    return (
        local.local_window(centre, S, 1),
        local.gaussian_window(centre, S, 1.5),
        local.position_offsets(centre, S),
    )


@case
def projections_and_heads(p):
    x, memory, mask = p((X, MEMORY, MASK))
    W = p([drawn(C, C) for _ in range(4)])
    return (
        self_attention.self_attention(x, *W[:3]),
        self_attention.causal_self_attention(x, *W[:3]),
        self_attention.cross_attention(x, memory, *W[:3], mask),
        multi_head.multi_head(x, memory, *W, H, mask),
        multi_head.multi_head_loop(x, memory, *W, H, mask),
        multi_head.attend_in_parts(*[p(drawn(B, H, T, 5)) for _ in range(3)]),
    )


ATTENTIONS = {
    "MultiHeadAttention": lambda: multi_head.MultiHeadAttention(C, H),
    "GroupedQueryAttention": lambda: grouped_query.GroupedQueryAttention(C, H, 1),
    "QKNormAttention": lambda: stabilized_attention.QKNormAttention(C, H),
    "SoftCapAttention": lambda: stabilized_attention.SoftCapAttention(C, H, 2.0),
    "EncoderBlock": lambda: transformer_blocks.EncoderBlock(C, H, 10),
}
for name, factory in ATTENTIONS.items():

    def attending(p, factory=factory):
        x = p(X)
        mask = self_attention.causal_mask(T, T, x.device)
        return p(made(factory))(x, mask=mask)

    CASES[name] = attending, False


@case
def a_language_model(p):
    model = p(made(lambda: language_model.LanguageModel(V, SIZE)))
    ids = p(PREVIOUS)
    with torch.no_grad():
        likely = language_model.sample(model, ids, 2, temperature=0)
    return model(ids), likely


@case
def a_modern_language_model_and_its_cache(p):
    sizes = V, C, H, 1, 10, 2
    model = p(made(lambda: modern_block.ModernLanguageModel(*sizes)))
    ids = p(PREVIOUS)
    _, caches = model.decode(ids[:, :2])
    return model(ids), model.decode(ids[:, 2:], caches)[0]


@case
def a_modern_decoder_its_cache_and_greedy_decoding(p):
    config = modern_decoder.DecoderConfig(V, C, H, 1, 10, 2)
    model = p(made(lambda: modern_decoder.ModernDecoder(config)))
    ids = p(PREVIOUS)
    real = p(MASK[:2, None, None, :T])
    _, caches = model.decode(ids[:, :2])
    return (
        model(ids, real),
        model.decode(ids[:, 2:], caches)[0],
        modern_decoder.decode_greedily(model, ids, 2),
    )


@case
def weights_under_the_names_of_transformers(p):
    config = modern_decoder.DecoderConfig(V, C, H, 1, 10, 1)
    model = p(made(lambda: modern_decoder.ModernDecoder(config)))
    theirs = {
        pretrained.NAMES[name.replace("s.0.", "s.{}.", 1)].format(0): x
        for name, x in model.state_dict().items()
    }
    weights = pretrained.convert_llama_weights(theirs, config)
    return list(weights.values())


@case
def losses_of_models_that_predict(p):
    language = p(made(lambda: language_model.LanguageModel(V, SIZE)))
    ids = p(PREVIOUS)
    next_token = losses.compute_next_token_loss(language(ids), ids)
    model = p(made(lambda: lookup_model.LookupModel(V, V, V, D, E)))
    rng = torch.Generator().manual_seed(2)
    batch = lookup_model.draw_lookup(B, S, V, T, rng).to(p.device)
    logits, _ = model(*batch[:3])
    return next_token, F.cross_entropy(logits.flatten(0, -2), batch.answer.flatten())


@case
def flash_attention_by_tiles(p):
    q, k, v, slopes, lengths = (
        p(x) for x in (QUERY, KEY, VALUE, torch.tensor([0.5, -0.25]), LENGTHS)
    )
    options = {"softcap": 2.0, "alibi_slopes": slopes.detach()}
    return (
        flash.flash_attention(q, k, v),
        flash.flash_attention(q, k, v, causal=True, window=2, **options),
        flash.flash_attention(q, k, v, key_lengths=lengths),
    )


@case
def decoding_from_a_cache_and_from_its_pages(p):
    """A device reads neither lengths nor page numbers."""
    q, k, v = p((QUERY[:, :, :1], KEY[:, :1], VALUE[:, :1]))
    pools = p((drawn(6, 1, 2, D), drawn(6, 1, 2, E)))
    table, lengths = p((torch.tensor([[5, 0, 2], [3, 1, -1]]), LENGTHS))
    with torch.no_grad():
        return (
            attend_split_kv(q, k, v, parts=2),
            attend_split_kv(q, k, v, lengths),
            attend_paged(q, *pools, table, lengths, parts=2),
        )


@case(reads=True)
def sampling_from_one_seed_gives_the_same_on_every_device(p):
    model = p(made(lambda: language_model.LanguageModel(V, SIZE)))
    rng = torch.Generator().manual_seed(3)
    return language_model.sample(model, p(PREVIOUS), 5, rng=rng)


@case(reads=True)
def gradients_at_both_ends_of_a_sequence(p):
    layer = p(made(lambda: sequence_layers.SelfAttentionLayer(C)))
    return sequence_layers.compute_gradient_norms_at_ends(layer, p(X), p(drawn(B, C)))


@case
def layer_norms(p):
    x = p(X)
    norm = p(layer_norm.LayerNorm(C))
    return norm(x), layer_norm.layer_norm(x, norm.weight, norm.bias)


@case
def looking_up_in_tables(p):
    model = p(made(lambda: associative_recall.AssociativeRecallModel(H, C)))
    rng = torch.Generator().manual_seed(2)
    tables = associative_recall.draw_tables(3, rng).to(p.device)
    logits, weights = model(tables)
    answers = recall_training.get_targets(tables)
    return associative_recall.compute_lookup_loss(logits, answers), weights


@case(reads=True)
def a_run_that_goes_on_from_its_checkpoint(p):
    recipe = loop.Recipe(2, size=3)
    with tempfile.TemporaryDirectory() as folder:
        path, history = Path(folder) / "run.safetensors", []
        for _ in range(2):
            model = p(made(SEQ2SEQ["fixed"]))
            trainer = loop.Trainer(model, PAIRS, PAIRS, recipe)
            if path.exists():
                checkpoints.resume_from_checkpoint(trainer, path)
                assert len(trainer.history) == 1
            trainer.run_epoch(progress=False)
            checkpoints.save_checkpoint(trainer, path)
        history = [(h["train_loss"], h["valid_loss"]) for h in trainer.history]
    return history, [*model.state_dict().values()]


@case(reads=True)
def training_to_look_up(p):
    model = p(
        made(lambda: associative_recall.AssociativeRecallModel(H, C, dropout=0.5))
    )
    recall_training.train(model, 3, 0, size=4)
    error = recall_training.compute_error_rate(model, 8)
    recall_training.compute_error_rates(model, 8)
    return error, [*model.state_dict().values()]


AGENT_KINDS = [
    memory_agent.AttentionAgent,
    memory_agent.UnpositionedAgent,
    memory_agent.RecurrentAgent,
    memory_agent.MemorylessAgent,
]


@case
def agents_with_a_memory(p):
    symbols = p(PREVIOUS) % t_maze.SYMBOLS
    rewards, running = symbols.double(), symbols > 2
    episodes = t_maze_training.Episodes(
        symbols, symbols % 3, rewards.float(), running, running[:, 0]
    )
    agents = [p(made(lambda kind=kind: kind(7, 3, C))) for kind in AGENT_KINDS]
    return (
        [agent(symbols)[:2] for agent in agents],
        [t_maze_training.compute_policy_loss(agent, episodes) for agent in agents],
        t_maze_training.compute_returns(rewards, 0.5),
        agents[0].compute_weights(symbols),
    )


@case(reads=True)
def training_in_a_t_maze(p):
    agent = p(made(lambda: memory_agent.AttentionAgent(7, 3, C)))
    successes = t_maze_training.train(agent, 3, 2, 0, size=4)
    rng = torch.Generator().manual_seed(2)
    episodes = t_maze_training.play(agent, t_maze.TMaze(B, 3, rng))
    return successes, [*episodes], [*agent.state_dict().values()]


@case
def a_model_that_only_attends(p):
    model = p(made(lambda: lookup_model.LookupModel(V, V, V, D, E)))
    rng = torch.Generator().manual_seed(2)
    copy = lookup_model.draw_copying(B, S, V, rng).to(p.device)
    pairs = lookup_model.draw_lookup(B, S, V, T, rng).to(p.device)
    return [(model(*x[:3]), x.answer) for x in (copy, pairs)]


def classify(p, encoder):
    """Return a classifier on a place, and a batch of its task."""
    model = p(made(lambda: attention_classifier.AttentionClassifier(encoder())))
    rng = torch.Generator().manual_seed(2)
    batch = attention_classifier.draw_question_task(B, S, rng)
    return model, batch.to(p.device)


def embed_words():
    return attention_classifier.EmbeddingEncoder(attention_classifier.WORDS, C)


@case
def answers_to_questions_and_losses_that_mislead(p):
    model, batch = classify(p, embed_words)
    logits, weights = model(batch.words, batch.question)
    uniform = p(made(lambda: attention_classifier.UniformClassifier(embed_words())))
    forbidden = batch.words % 2 == 0
    rng = torch.Generator().manual_seed(2)
    keyword = attention_classifier.draw_keyword_task(B, S, rng)
    output, other = logits.softmax(-1), logits.flip(-1).softmax(-1)
    return (
        uniform(*keyword.to(p.device)[:2]),
        deception.compute_deception_penalty(weights, forbidden),
        deception.compute_adversary_loss(output, other, weights, weights.flip(-1), 0.1),
        deception.jensen_shannon(output, other),
        output,
    )


@case
def importance_of_words(p):
    model, batch = classify(p, embed_words)

    def predict(words):
        return model(words, batch.question)[0].softmax(-1)

    states = model.encode(batch.words).detach()

    def read(weights):
        return model.read_states(states, weights).softmax(-1)

    with torch.no_grad():
        weights = model.compute_weights(states, batch.question)
        erasure = explanations.measure_erasure(
            predict, batch.words, predict(batch.words)
        )
        rng = torch.Generator().manual_seed(2)
        shuffled = explanations.measure_permutation(read, weights, rng, 3)
    found = explanations.find_adversarial_weights(read, weights, rng, starts=2, steps=3)
    gradient = explanations.multiply_gradient_by_input(
        model.encoder.embed, lambda: predict(batch.words)
    )
    norms = explanations.multiply_weights_by_norms(weights, states)
    tau = explanations.rank_correlation(erasure, norms)
    return erasure, shuffled, found, gradient, norms, tau


@case(reads=True)
def the_share_of_questions_whose_word_is_named(p):
    model, batch = classify(
        p, lambda: encoder.Encoder(attention_classifier.WORDS, 5, C)
    )
    _, weights = model(batch.words, batch.question)
    return explanations.measure_naming(weights, batch.evidence), weights


@case
def a_model_that_finds_related_names(p):
    rng = torch.Generator().manual_seed(2)
    found = []
    for relation in relation_model.RELATIONS.values():
        for layer in relation_model.PROJECTIONS.values():
            sizes = 4, V, C, layer
            model = p(made(partial(relation_model.RelationModel, *sizes)))
            batch = relation_model.draw_relation(B, 4, V, relation, rng)
            batch = batch.to(p.device)
            logits = model(batch.names, batch.colors)
            found.append((logits, relation(batch.names, 4)))
    return found


@case
def masks_made_of_sizes(p):
    on = {"device": p.device}
    return (
        masks.causal(T, S, **on),
        masks.window(T, S, 2, **on),
        masks.dilated(T, S, 2, 2, **on),
        masks.prefix(T, S, 2, **on),
        masks.sinks(T, S, 1, **on),
        masks.two_sided_window(T, S, 1, **on),
        masks.global_tokens(T, S, [1], **on),
        layouts.cover_rule(rules.window(4, 6, 2), 4, 6, 2, **on),
        layouts.bigbird_layout(7, 1, 1, 1, seed=0, **on),
        receptive_field.receptive_field(masks.causal(T, T, **on), 2),
        self_attention.causal_mask(T, S, **on),
        inspection.find_order_errors(masks.causal(T, S, **on)[None, None], T, S)
        if p.device.type != "meta"
        else None,
    )


@case
def masks_made_of_tensors(p):
    lengths, ids = p((LENGTHS, whole(2, B, S, low=0)))
    mask = p(MASK)
    return (
        masks.prefix(T, S, lengths),
        masks.document(ids),
        packing.reset_positions(ids),
        masks.block_sparse(p(MASK), 2),
        conventions.write_mask(mask, "additive"),
        conventions.write_mask(mask, "ones"),
        encoder.Memory(p(MEMORY), p(X), lengths).padding_mask(),
        rules.padding(lengths)(p(LENGTHS) * 0, 0, 0, p(LENGTHS) - 2),
    )


@case(reads=True)
def masks_that_are_read(p):
    query, key, mask = p((QUERY, KEY, MASK))
    wrong = masks.causal(S, S, p.device).mT
    additive = conventions.write_mask(mask, "additive")
    return (
        conventions.convert_mask(additive, given="additive", wanted="keep"),
        inspection.inspect_mask(wrong, key, key),
        inspection.inspect_mask(mask, query, key),
        inspection.inspect_mask(additive, query, key),
        masks.draw_mask(mask),
        masks.require_keys(mask),
        masks.padding(p(LENGTHS), S),
    )


@case
def positions_made_of_sizes(p):
    on = {"device": p.device}
    return (
        absolute.sinusoidal(T, C, **on),
        absolute.shift_matrix(1.5, C, **on),
        biases.alibi(3, T, S, **on),
        biases.distances(T, S, **on),
        rotary.halves_permutation(C, **on),
        context_extension.interpolate_positions(C, 2, **on),
        context_extension.scale_ntk_aware(C, 2, **on),
        context_extension.scale_yarn(C, 2, 64, **on),
        context_extension.scale_llama3(C, 2, 64, **on),
        context_extension.scale_dynamic_ntk(C, 128, 64, **on),
    )


@case
def positions_made_of_tensors(p):
    x, table, places = p((QUERY, drawn(H, 5), torch.arange(T)))
    rows = p(drawn(5, D))
    angle = rotary.rotary_angles(places, rotary.rotary_frequencies(x, 10000.0))
    return (
        p(absolute.SinusoidalEncoding(C))(places),
        biases.relative_bias(table, T, S),
        biases.t5_bucket(places - 2),
        p(biases.AlibiBias(H)).to(p.device)(T, S)
        if p.device != PLACE
        else p(biases.AlibiBias(H))(T, S),
        p(biases.T5Bias(H))(T, S),
        rotary.rotate(x, places),
        rotary.rotate_halves(x, places),
        rotary.rotate_partly(x, places, 2),
        rotary.apply_rotary(x, angle),
        shaw.shaw_bias(x, rows, S),
        shaw.shaw_output(x @ p(KEY).mT, rows),
        p(made(lambda: shaw.ShawEncoding(D, 2)))(x, S),
    )


@case
def a_learned_table_of_positions(p):
    return p(made(lambda: absolute.LearnedEncoding(T, C)))(p(torch.arange(T)))


@case(reads=True)
def diagnosing_behaviour(p):
    x = p(X)
    model = p(made(ATTENTIONS["EncoderBlock"]))
    W = p([drawn(C, C) for _ in range(3)])

    def causal(x):
        return self_attention.causal_self_attention(x, *W)

    def padded(x, lengths):
        mask = masks.padding(lengths, x.shape[1])[:, 0]
        return self_attention.self_attention(x, *W, mask)

    lengths = p(torch.tensor([3, 2]))
    with torch.no_grad():
        return (
            diagnose.measure_leak(causal, x),
            diagnose.measure_leak(model, x),
            diagnose.measure_prefix_effect(causal, x),
            diagnose.measure_padding_effect(padded, x, lengths),
            diagnose.measure_longer_padding(padded, x, lengths),
            diagnose.measure_batch_effect(causal, x),
            diagnose.measure_order_effect(causal, x),
            diagnose.measure_randomness(model, x),
            behavior.perturb(p(PREVIOUS)),
        )


@case(reads=True)
def alarms_about_heads(p):
    x, real = p(X), p(LENGTHS > 3)[:, None].expand(B, T)
    ours = p(made(lambda: multi_head.MultiHeadAttention(C, H)))
    theirs = p(made(lambda: nn.MultiheadAttention(C, H, batch_first=True)))
    found = diagnose.find_head_alarms(ours, lambda: ours(x), real)
    numbers = diagnose.measure_heads(theirs, lambda: theirs(x, x, x)[0])
    return (
        *numbers[""].values(),
        *(alarm.value for alarm in found),
        *(x.head for x in diagnose.compare_with_thresholds(numbers)),
    )


@case(reads=True)
def diagnosing_a_model_at_work(p):
    model = p(made(lambda: multi_head.MultiHeadAttention(C, H)))
    with diagnose.record_attention(model) as kept:
        output = model(p(X))
    bad = p(X).masked_fill(p(X) > 1, torch.nan)
    weights = kept[""][0]
    return (
        weights,
        diagnose.measure_weight_errors(weights, self_attention.causal_mask(
            T, T, weights.device
        )),
        diagnose.find_missing_gradients(model, output.sum()),
        diagnose.find_nonfinite_layer(model, bad),
    )  # fmt: skip


@case(reads=True)
def comparing_with_the_reference(p):
    wrong = reference.MISTAKES["the scores are not scaled"]
    return (
        diagnose.compare_with_reference(scaled_dot_product.attend, device=p.device),
        diagnose.find_known_mistakes(wrong, device=p.device),
    )


@case
def weights_of_pytorch(p):
    theirs = made(
        lambda: nn.TransformerDecoder(
            nn.TransformerDecoderLayer(C, H, 10, batch_first=True), 1
        )
    )
    block = made(lambda: transformer_blocks.DecoderBlock(C, H, 10))
    ours, theirs = p(nn.ModuleList([block])), p(theirs)
    from_pytorch.copy_stack(ours, theirs)
    return ours[0](p(X), p(MEMORY))


@case
def maps_of_a_transformer(p):
    model = p(made(SEQ2SEQ["Transformer"]))
    return attention_maps.collect_maps(model, *p((SOURCE, LENGTHS, PREVIOUS)))


@case
def whisper_and_its_maps(p):
    sizes = whisper.WhisperConfig(6, C, H, 10, 2, S, T, V)
    model = p(made(lambda: whisper.Whisper(sizes)))
    return model(*p((drawn(B, 6, 2 * S), PREVIOUS)))


@case(reads=True)
def whisper_generates(p):
    sizes = whisper.WhisperConfig(6, C, H, 10, 1, S, 2 * T, V)
    decoder = p(made(lambda: whisper.WhisperDecoder(sizes)))
    return whisper.transcribe_greedily(decoder, p(MEMORY), [4, 5], 9, 3)


def spell(p, make_speller):
    model = p(made(lambda: make_speller(C, V, 4, 6, 8)))
    return model, *p((drawn(B, 9, C), torch.full((B,), 9)))


@case
def spelling_from_frames(p):
    found = []
    for make_speller in (
        listen_attend_spell.make_listen_attend_spell,
        listen_attend_spell.make_last_state_speller,
    ):
        model, frames, lengths = spell(p, make_speller)
        found.append(model(frames, lengths, p(PREVIOUS)).logits)
    return found, listen_attend_spell.join_neighbors(frames, 2)


@case
def frames_of_a_sound(p):
    return listen_attend_spell.compute_frames(p(drawn(4000)), log_mel.RATE)


@case
def spectrogram_of_a_sound(p):
    sound, hertz = p((drawn(4000), drawn(S).exp() * 1000))
    mel = log_mel.hertz_to_mel(hertz)
    return (
        log_mel.log_mel_spectrogram(sound, log_mel.RATE, seconds=1),
        log_mel.make_mel_filters(5, 9, p.device),
        log_mel.mel_to_hertz(mel),
    )


@case
def weights_in_intervals(p):
    weights, middle = p((drawn(B, T, S).softmax(-1), drawn(T)))
    times = torch.stack([middle, middle + 1], dim=1)
    return (
        intervals.crop_keys(weights, 3),
        intervals.extend_intervals(times, 2.0),
        intervals.find_peak_times(weights, 0.1),
        intervals.mark_intervals(times, S, 0.1),
        intervals.measure_mass_inside(weights, times, 0.1),
        intervals.share_peaks_inside(intervals.find_peak_times(weights, 0.1), times),
    )


@case(reads=True)
def links_of_weights(p):
    weights = p(drawn(T, S).softmax(-1)).detach()
    return sorted(metrics.extract_links(weights, T, S - 1))


@case
def memory_of_a_call(p):
    q, k, v = p((QUERY, KEY, VALUE))

    def call():
        return scaled_dot_product.attend(q, k, v)

    saved = allocations.count_saved_bytes(call, [q, k, v])
    return saved, allocations.measure_peak_bytes(call, "meta")


@case
def traffic_of_a_call(p):
    q, k = (x.detach() for x in p((QUERY, KEY)))
    count = tracing.trace_call(lambda: q @ k.mT)
    return count.flops, tracing.make_meta_tensor(2, 3).shape


@case
def where_a_model_is(p):
    model = p(made(ATTENTIONS["EncoderBlock"]))
    assert devices.find_device(model) == p.device
    assert devices.choose_device().type in ("cpu", "cuda")
    return encoder_decoder.count_parameters(model)


@case(reads=True)
def dropout_from_one_seed(p):
    with devices.use_seed(3, p.device):
        first = F.dropout(p(X), 0.5)
    with devices.use_seed(3, p.device):
        second = F.dropout(p(X), 0.5)
    assert torch.equal(first, second)
    return first


@case(reads=True)
def copies_products_and_exponentials_are_timed_on_the_cpu(p):
    assert roofline.measure_machine().ridge_point > 0
    assert 0 < exponentials.measure_exponential_rate(rounds=5) < math.inf


def numbers(found):
    """Return what a case gave as nested lists and numbers on the CPU."""
    return [
        x.detach().cpu() if isinstance(x, torch.Tensor) else x
        for x in tree_leaves(found)
    ]


def result(name, place):
    """Run a case on a fresh place: its outputs and the inputs' gradients."""
    function, _ = CASES[name]
    p = TrialDevice(place.name, place.device)
    state = RNG.get_state()
    with p.entered():
        found = function(p)
        RNG.set_state(state)
        tensors = [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
        for x in tensors:
            assert p.holds(x), f"a result is on {x.device}, not on {p.device}"
        loss = sum(
            x.masked_fill(~x.isfinite(), 0.0).square().mean()
            for x in tensors
            if x.requires_grad
        )
        if isinstance(loss, torch.Tensor):
            loss.backward()
        grads = [x.grad for x in p.leaves if x.grad is not None]
        for x in grads:
            assert p.holds(x), f"a gradient is on {x.device}, not {p.device}"
        if place is META:
            return len(grads)
        return numbers(found), numbers(grads)


ON_META = [name for name, (_, reads) in CASES.items() if not reads]


@pytest.mark.parametrize("name", CASES)
def test_the_device_of_the_inputs_is_kept_where_values_are_read(name):
    for found, wanted in zip(result(name, STANDIN), result(name, CPU), strict=True):
        assert list(map(type, found)) == list(map(type, wanted))
        for ours, theirs in zip(found, wanted, strict=True):
            if isinstance(ours, torch.Tensor | float):
                torch.testing.assert_close(
                    ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True
                )
            else:
                assert ours == theirs


@pytest.mark.parametrize("name", ON_META)
def test_the_device_of_the_inputs_is_kept_on_meta(name):
    assert result(name, META) == len(result(name, CPU)[1])


LEFT_OUT = {
    **dict.fromkeys(
        (f"data.{x}" for x in ("cmudict", "grammar", "libreoffice", "multi30k")),
        "reads files into lists",
    ),
    **dict.fromkeys(
        ("data.characters", "data.minilm", "records"), "reads records and texts"
    ),
    **dict.fromkeys(
        (
            *("training.tasks", "training.scoring", "training.run"),
            *("training.trained", "training.language_modeling"),
            *("training.character_model", "training.leaderboard"),
        ),
        "recorded runs: the tests of workshop.experiments on a device",
    ),
    **dict.fromkeys(
        (
            *("models.gguf_files", "models.smollm2"),
            *("models.ctranslate2_files", "models.whisper_tiny"),
            *("models.package_files", "data.spoken_digits", "data.digits"),
            "data.emoji",
        ),
        "reads files into weights, sounds and images",
    ),
    "data.cluttered_digits": "pastes images on the CPU",
    "exercises": "compares answers on the CPU",
    "figures": "draws numbers that it moves to the CPU",
    "flash": "its kernels run on a GPU: the tests marked cuda; one case here",
    "grade": "compares answers on the CPU",
    "widgets": "sends lists to a browser",
}
# What reads numbers, so that "meta" cannot run it.
READ_ON_META = {
    "training.batching": {"make_batch"},
    "attention.block_sparse": "all",
    "attention.blocked": {"attend_in_blocks"},
    "attention.tensor_trees": "all",
    "attention.decay": {"read_decay"},
    "attention.delta_rule": "all",
    "attention.graph": {"attend_graph", "attend_graph_v2", "check_edges"},
    "data.graph_tasks": "all",
    "data.help_graph": {"draw_labeled"},
    "diagnose.neighborhoods": {"shuffle_within_targets"},
    "models.graph_network": {
        "join_neighbors",
        "GraphNetwork",
    },
    "training.checkpoints": {
        "save_checkpoint",
        "resume_from_checkpoint",
        "select_prefix",
    },
    "profiling.exponentials": {"measure_exponential_rate"},
    "profiling.roofline": {
        "measure_copy_rate",
        "measure_product_rate",
        "measure_machine",
    },
    "profiling.timing": {"measure_seconds", "time_calls"},
    "models.devices": {"use_seed", "sample_columns"},
    "models.sequence_layers": {
        "compute_gradient_norms_at_ends",
        "compute_mean_norm",
    },
    "diagnose.behavior": "all",
    "diagnose.head_alarms": "all",
    "diagnose.recording": "all",
    "diagnose.reference": {
        "draw_case",
        "run_case",
        "compare_with_reference",
        "find_known_mistakes",
    },
    "diagnose.explanations": {"measure_naming"},
    "diagnose.weights": {"measure_weight_errors"},
    "masks": {"draw_mask", "padding", "require_keys"},
    "masks.conventions": {"read_mask", "convert_mask"},
    "masks.inspection": "all",
    "models.spatial_attention": {"measure_mass_in_boxes"},
    "models.whisper": {"transcribe_greedily"},
    "training.metrics": {"extract_links"},
    "training.search": "all",
    "training.associative_recall": {
        "train",
        "compute_error_rate",
        "compute_error_rates",
    },
    "training.loop": {"compute_held_out_loss", "optimize"},
    "training.t_maze": {"play", "train"},
    "data.vocabulary": {"pad_sequences"},
}
TAKES = re.compile(
    r"Tensor|Module|Generator|device|Memory|Batch|Tables|Task|Trainer|LookupModel"
)


def code_of(thing):
    """Return the code that runs when a function or a model is called."""
    if inspect.isclass(thing):
        thing = thing.forward
    return inspect.unwrap(thing).__code__


def public():
    """Return every public function and model that has to do with tensors."""
    found = {}
    for info in pkgutil.walk_packages(attnbook.__path__, "attnbook."):
        parts = info.name.split(".")
        if LEFT_OUT.keys() & {parts[1], ".".join(parts[1:3])}:
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", "") == info.name
            if name.startswith("_") or not own:
                continue
            model = inspect.isclass(thing) and issubclass(thing, nn.Module)
            function = inspect.isfunction(thing) and TAKES.search(
                str(inspect.signature(thing))
            )
            if model or function:
                found[f"{info.name.removeprefix('attnbook.')}.{name}"] = thing
    return found


def ran(names, place):
    """Return the code that runs in these cases; one training run will do."""
    slow = [x for x in names if x.startswith(("training:", "search:"))]
    names = [x for x in names if x not in slow[2:]]
    seen = set()

    def note(frame, event, _):
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for name in names:
            CASES[name][0](place)
    finally:
        sys.setprofile(before)
    return seen


def missing(place, names):
    """Return the public functions and models that no case runs on a place."""
    p = TrialDevice(place.name, place.device)
    with p.entered():
        seen = ran(names, p)
    return [name for name, x in public().items() if code_of(x) not in seen]


def test_every_public_function_has_a_case():
    found = missing(STANDIN, CASES)
    assert not found, (
        f"no case of {Path(__file__).name} runs {found} with tensors on "
        "another device: add a case, or call them in one"
    )


def test_every_public_function_that_reads_no_value_has_a_case_on_meta():
    found = []
    for name in missing(META, ON_META):
        module, _, function = name.rpartition(".")
        reads = READ_ON_META.get(module, ())
        if reads != "all" and function not in reads:
            found.append(name)
    assert not found, (
        f'no case of {Path(__file__).name} runs {found} on "meta": add a case, '
        "or name them in READ_ON_META if they read values"
    )


def test_a_function_without_a_case_is_found(monkeypatch):
    def forgotten(x: torch.Tensor) -> torch.Tensor:
        return x

    monkeypatch.setattr(forgotten, "__module__", "attnbook.models.layer_norm")
    monkeypatch.setattr(layer_norm, "forgotten", forgotten, raising=False)
    assert missing(META, ["layer_norms"])
    assert "models.layer_norm.forgotten" in missing(META, ["layer_norms"])
    assert "models.layer_norm.layer_norm" not in missing(META, ["layer_norms"])


def without_device(function):
    """Return a function that makes its tensor on the default device."""

    def made(*args, device=None, **more):
        return function(*args, **more)

    return made


class Unregistered(layer_norm.LayerNorm):
    """A norm with a tensor that is neither a parameter nor a buffer."""

    def __init__(self, width):
        super().__init__(width)
        self.shift = torch.ones(width)

    def forward(self, x):
        return super().forward(x) + self.shift


# Where something is made on the default device instead, and a case that uses
# it.
BROKEN = {
    "torch.arange, for padding": (torch, "arange", "forward: Bahdanau"),
    "torch.arange, for positions": (
        torch,
        "arange",
        "AttentionOnlyTransformer: rope",
    ),
    "torch.arange, for windows": (torch, "arange", "forward: Luong, monotonic"),
    "torch.ones, for a mask": (torch, "ones", "forward: Transformer"),
    "a mask that is returned": (
        masks,
        "materialize_mask",
        "masks_made_of_sizes",
    ),
    "distances": (biases, "distances", "positions_made_of_sizes"),
}
READ_BROKEN = {
    "torch.tensor, for symbols": (torch, "tensor", "search: Bahdanau"),
    "torch.zeros, for scores": (torch, "zeros", "search: Transformer"),
    "torch.tensor, for differences": (torch, "tensor", "diagnosing_behaviour"),
    "torch.arange, for padding": (torch, "arange", "training: Bahdanau"),
}
FOUND = "same device|not on the expected device|is on cpu|copy out of meta"


@pytest.mark.parametrize("place", [META, STANDIN], ids=lambda p: p.name)
@pytest.mark.parametrize("what", BROKEN)
def test_both_stand_ins_find_what_is_made_on_the_wrong_device(what, place, monkeypatch):
    owner, name, used = BROKEN[what]
    monkeypatch.setattr(owner, name, without_device(getattr(owner, name)))
    with pytest.raises((RuntimeError, AssertionError), match=FOUND):
        result(used, place)


@pytest.mark.parametrize("what", READ_BROKEN)
def test_the_stand_in_finds_it_where_values_are_read(what, monkeypatch):
    owner, name, used = READ_BROKEN[what]
    monkeypatch.setattr(owner, name, without_device(getattr(owner, name)))
    with pytest.raises((RuntimeError, AssertionError), match=FOUND):
        result(used, STANDIN)


@pytest.mark.parametrize("place", [META, STANDIN], ids=lambda p: p.name)
def test_both_stand_ins_find_a_tensor_that_does_not_move_with_its_model(
    place, monkeypatch
):
    monkeypatch.setattr(transformer_blocks, "LayerNorm", Unregistered)
    with pytest.raises(RuntimeError, match=FOUND):
        result("EncoderBlock", place)


def test_the_stand_in_refuses_what_a_gpu_refuses():
    with STANDIN.entered():
        x = STANDIN(X)
        with pytest.raises(TypeError, match="to numpy"):
            x.detach().numpy()
        with pytest.raises(RuntimeError, match=WRONG):
            x + X
        with pytest.raises(RuntimeError, match=WRONG):
            torch.cat([x, X])
        with pytest.raises(RuntimeError, match=WRONG):
            F.linear(x, torch.ones(C, C))
        # A number may come from the CPU, and so may an index.
        assert (x * torch.tensor(2.0)).device == PLACE
        assert x[torch.tensor([0])].device == PLACE
        assert x.cpu().device.type == "cpu"
        assert torch.equal(x.cpu(), X)
        assert X.to(x.device).device == PLACE
        assert torch.arange(3, device=x.device).device == PLACE
