"""Widgets to try: one of each kind, with hostile labels, and too wide ones."""

from attnbook.data.recorded_maps import load_maps
from attnbook.profiling.roofline import MODELS
from attnbook.widgets.alignment_player import AlignmentPlayer
from attnbook.widgets.attention_map import AttentionMap
from attnbook.widgets.cache_stepper import CacheStepper
from attnbook.widgets.cost_calculator import CostCalculator
from attnbook.widgets.head_explorer import SCORES, HeadExplorer
from attnbook.widgets.mask_builder import MaskBuilder
from attnbook.widgets.pattern_explorer import PatternExplorer
from attnbook.widgets.picture_and_sound import PictureAndSound
from attnbook.widgets.position_explorer import PositionExplorer
from attnbook.widgets.soft_lookup import COLORS, SoftLookup
from attnbook.widgets.tile_stepper import TileStepper
from attnbook.widgets.translation_map import TranslationMap

MARKUP = "</script><img src=x onerror=alert(1)>"
LONG_WORD = "Donaudampfschifffahrtsgesellschaft" * 2
WORDS = [f"word{i}" for i in range(40)]


def make_alignment_player(source, output):
    """Return a player whose outputs attend to all source words equally."""
    row = [1 / len(source)] * len(source)
    made = {"output": output, "weights": [row] * len(output)}
    titled = {"title": source[0], "source": source, "reference": output}
    other = {"output": output[:-1]}
    return AlignmentPlayer([titled | {"with": made, "without": other}])


def make_attention_map(words):
    """Return the map of one head, each word attending to itself."""
    rows = [[float(s == t) for s in words] for t in words]
    example = {"title": words[0], "query": words, "weights": [[rows]]}
    return AttentionMap([example])


def make_translation_map(source, output):
    """Return maps of one head, each row attending to its first word."""

    def make_rows(queries, keys):
        return [[[[1.0] + [0.0] * (len(keys) - 1)] * len(queries)]]

    example = {
        "title": source[0],
        "source": source,
        "output": output,
        "encoder": make_rows(source, source),
        "decoder": make_rows(output, output),
        "cross": make_rows(output, source),
    }
    return TranslationMap([example])


def make_pattern_explorer(tokens, **given):
    """Return an explorer in whose map queries attend to past keys equally."""
    rows = [[1000 // (t + 1)] * (t + 1) for t in range(len(tokens))]
    heads = [{"title": tokens[0], "thousandths": rows}] * 2
    example = {"title": tokens[0], "tokens": tokens, "heads": heads}
    return PatternExplorer(example, **given)


def make_head_explorer(tokens, layers=3, per_layer=2, **given):
    """Return an explorer of heads that attend to past keys equally."""
    T = len(tokens)
    number = range(layers * per_layer)
    sentence = {
        "title": tokens[0],
        "tokens": tokens,
        "losses": [300 + t for t in range(1, T)],
        "induction_queries": 0,
        "chance": dict.fromkeys(["induction", "previous", "first"], 20),
        **{name: [10 * (i % 10) for i in number] for name in SCORES},
    }
    recorded = {
        "hundredths": [[100 // (t + 1)] * (t + 1) for t in range(T)],
        "norms": [1.0 + t for t in range(T)],
        "effects": [10 * (-1) ** t * t for t in range(1, T)],
    }
    heads = [
        {"title": tokens[0], "layer": i, "head": 0, "maps": [recorded] * 2}
        for i in range(2)
    ]
    maps = {
        "layers": layers,
        "per_layer": per_layer,
        "sentences": [sentence, sentence | {"title": "another"}],
        "heads": heads,
    }
    return HeadExplorer(maps, **given)


def make_picture_and_sound(words, **given):
    """Return a picture, and a sound whose letters have equal weights."""
    picture = {
        "kind": "picture",
        "title": words[0],
        "gray": ["00f0", "0ff0", "0000"],
        "grid": [3, 2],
        "steps": [
            {
                "label": words[0],
                "part": words[-1],
                "thousandths": [100, 300, 0, 600, 0, 0],
                "box": [0, 1, 2, 3],
            }
        ],
    }
    steps = [
        {
            "label": word,
            "part": words[0],
            "thousandths": [1000 // len(words)] * len(words),
            "box": [0, s, 2, s + 1.5],
        }
        for s, word in enumerate(words)
    ]
    sound = {
        "kind": "sound",
        "title": " ".join(words),
        "gray": ["0f" * len(words), "8c" * len(words)],
        "grid": [1, len(words)],
        "milliseconds": 80 * len(words),
        "steps": steps,
    }
    return PictureAndSound([picture, sound], **given)


def make_lookup(label):
    return SoftLookup([{**COLORS[0], "label": label}, *COLORS[1:]])


def make_calculator(name):
    return CostCalculator(name, models={name: MODELS["GPT-2 (small)"]})


def make_labelled(word):
    """Return the widgets that show what an author writes, with this word."""
    return {
        "alignment_player": make_alignment_player([word, "am"], [word, "b"]),
        "attention_map": make_attention_map([word, "cat", "sat"]),
        "head_explorer": make_head_explorer([word, "cat", "sat", "the"]),
        "pattern_explorer": make_pattern_explorer([word, *WORDS[1:16]], window=4),
        "picture_and_sound": make_picture_and_sound([word, "am"], item=1),
        "translation_map": make_translation_map([word, "am"], [word, "b"]),
    }


EXAMPLES = make_labelled("the") | {
    "cache_stepper": CacheStepper(),
    "cost_calculator": CostCalculator(),
    "mask_builder": MaskBuilder(),
    "position_explorer": PositionExplorer(),
    "soft_lookup": SoftLookup(),
    "tile_stepper": TileStepper(),
}
# The others show no text that an author writes.
HOSTILE = make_labelled(MARKUP) | {
    "cost_calculator": make_calculator(MARKUP),
    "soft_lookup": make_lookup(MARKUP),
}
WIDE_PARTS = [{"kind": k} for k in ("dilated", "prefix", "padding", "document")]
WIDE = {
    "alignment_player": make_alignment_player(WORDS, [LONG_WORD, *WORDS[1:]]),
    "attention_map": AttentionMap(load_maps(), heads="all"),
    "cache_stepper": CacheStepper(kind="GQA + window", step=15, page=8, window=12),
    "cost_calculator": make_calculator("Rechenkostenmodell" * 5),
    "head_explorer": make_head_explorer(
        [LONG_WORD, *(f"word{t}" for t in range(23))], layers=30, per_layer=9
    ),
    "mask_builder": MaskBuilder(WIDE_PARTS, T=10, S=10),
    "pattern_explorer": make_pattern_explorer(
        [LONG_WORD, *(f"word{t}" for t in range(63))], block=8, random_blocks=2
    ),
    "picture_and_sound": make_picture_and_sound([LONG_WORD, *WORDS], item=1),
    "position_explorer": PositionExplorer(method="sinusoidal", width=32, base=5e5),
    "soft_lookup": make_lookup(LONG_WORD),
    "tile_stepper": TileStepper(T=10, S=10, rows=3, columns=10, step=4),
    "translation_map": make_translation_map(WORDS, [LONG_WORD, *WORDS[1:]]),
}
