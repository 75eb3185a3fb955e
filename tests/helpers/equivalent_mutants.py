"""Mutants of solutions that do the same as the solution, and why.

`make bank` holds that every mutant that is accepted has a reason here. A rule
is an exercise (several with `|` between them, `*` for any), a pattern of the
mutant, and the reason.
"""

import re

TWO = "the input has as many axes as the exercise says: the last has a number"
REFUSED = "what it refuses is not among what the exercise hands over"
NO_ORDER = "a smallest, largest or sum of two has no order"
RULES = (
    ("*", r"transpose\((-1, -2|2, 1)\)$", "swapping two axes has no order"),
    ("*", r"device=.* → ", "the checks run on one device"),
    ("*", r"strict=True|truth: True → False", REFUSED),
    ("*", r"require_equal_counts", REFUSED),
    ("*", r"sign: -1 → 1", TWO),
    ("error_rate", r"edit_distance\(r, output\)", "a distance is symmetric"),
    (
        "error_cause",
        r"find_errors\(target, ",
        "where two sequences differ has no order",
    ),
    ("additive_scores", r"statement: for|number: 1 → 2", REFUSED),
    ("context", r"wrong|lengths\.m|number: 1 → 2", REFUSED),
    (
        "context",
        r"value\.masked_fill|number: 0\.0 → 1\.0",
        "padding has the weight 0 already; this is for NaN in it only, and "
        "what NaN does there is left open",
    ),
    (
        "alignment_error",
        r"set\(links\), set\(s\), set\(p\)|s - p",
        "the links come as sets, and a sure link that is not possible is "
        "refused, which no input asks for",
    ),
    (
        "decoder_fault",
        r"^arguments: (torch\.allclose|equal)\(",
        "whether two tensors are equal has no order",
    ),
    (
        "decoder_fault",
        r"^keyword: torch\.allclose",
        "a fault changes more than either tolerance allows",
    ),
    (
        "decoder_fault",
        r"number: (0 → 1|1 → 2)|operator: \w+ \+ 1",
        "another seed or another change of an input shows the same fault",
    ),
    (
        "decoder_fault",
        r"^statement: (state|memory) =|^keyword: torch\.randn",
        "the given examples, or other random numbers, show the same fault",
    ),
    (
        "alignment_explanation",
        r"model\(slots, words, t\)",
        "the solution gives words and slots the same order",
    ),
    ("general_scores", r"number: 1 → 2", REFUSED),
    ("concat_scores", r"number: (0 → 1|1 → 2)", REFUSED),
    ("split_heads", r"number: 1 → 2", REFUSED),
    ("masked_weights", r"fits|False → True|broadcast_shapes", REFUSED),
    (
        "masked_weights",
        r"number: 0\.0 → 1\.0",
        "the row is emptied afterwards; any finite number will do before",
    ),
    ("no_leak", r"allclose", "models differ by far more, or not at all"),
    ("no_leak", r"number: 1 → 2", "another start or width shows the same leak"),
    (
        "interface_weights",
        r"number: 10000\.0",
        "any number far below the scores gives the same weights",
    ),
    (
        "mask_fault",
        r"allclose|number: 2 → 3",
        "faults change more than either tolerance allows, at any width",
    ),
    (
        "mask_fault",
        r"isnan\(\)\.all",
        "NaN is not zero either: the second test finds it",
    ),
    (
        "packed_model",
        r"allclose|arguments: differ|number: 0\.0001",
        "whether two tensors are equal has no order; models differ by far more",
    ),
    (
        "packed_model",
        r"number: \d → \d|dtype=torch\.long",
        "other tokens and document numbers show the same",
    ),
    (
        "rotate",
        r"torch\.arange\(0, D, 2\)",
        "whole numbers divided are single precision, enough for the inputs",
    ),
    ("new_angles", r"^comparison: L \*", "no angle is exactly 2π"),
    (
        "rotary_fault",
        r"^arguments: (equal|torch\.allclose)\(",
        "whether two numbers are equal has no order",
    ),
    (
        "rotary_fault",
        r"^keyword: torch\.allclose\(",
        "scores differ by far more than the bound, or hardly by rounding",
    ),
    (
        "rotary_fault",
        r"^number: (0 → 1|9 → 10|1001 → 1002|1 → 2)$|^keyword: torch\.randn"
        r"|^arguments: (scores|at)\(",
        "other positions, or other random vectors, show the same fault",
    ),
    (
        "position_use",
        r"^comparison: head",
        "the weight of an attended key is far from a half",
    ),
    (
        "position_use",
        r"^(operator|method): words\.max|positions \+ 100|"
        r"^number: (1 → 2|100 → 101|2 → 3)$",
        "another word, another shift or a larger gap shows the same",
    ),
    (
        "accuracy_explanation",
        r"^number: (0 → 1|8 → 9)$|^keyword: torch\.randint"
        r"|^arguments: torch\.equal\(",
        "other random symbols, or one sequence more, separate the same",
    ),
    (
        "block_fault",
        r"^number: (0 → 1|1 → 2|1000 → 1001)$|^sign: -1 → 1$"
        r"|^keyword: torch\.randn\(",
        "another seed, position or sequence, or a slightly larger input, shows "
        "the same fault; all positions have the same shape",
    ),
    (
        "block_fault",
        r"^number: (0\.01 → 1\.01|0\.1 → 1\.1)$"
        r"|^keyword: torch\.allclose\(block\(",
        "what is measured is far from the limits",
    ),
    (
        "block_fault",
        r"^arguments: torch\.allclose\(",
        "the tolerance hardly depends on the order",
    ),
    (
        "tiled_fault",
        r"^number: (0 → 1|[3-5] → [4-6]|8 → 9|9 → 10|32 → 33|16\.0 → 17\.0)$"
        r"|^keyword: torch\.(randn|allclose)\(|^arguments: draw\(3, 5",
        "another seed, or slightly other sizes, show the same fault and hide "
        "the others",
    ),
    (
        "tiled_fault",
        r"^arguments: (torch\.allclose\(|is_wrong\(far)",
        "the tolerance hardly depends on the order, and the scores not on "
        "which of query and key is negative",
    ),
    (
        "run_difference",
        r"^number: (0 → 1|10\.0 → 11\.0|[34] → [45]|16 → 17|8 → 9)$"
        r"|^sign: -3 → 3$|^(operator|sides): (10\.0 \*\*|size \*)"
        r"|^keyword: torch\.rand",
        "any terms of different size have a sum that depends on the order",
    ),
    ("run_difference", r"^arguments: torch\.equal\(", NO_ORDER),
    (
        "benchmark_fault",
        r"^number: (16384 → 16385|1\.5 → 2\.5|512 → 513|1 → 2|1000 → 1001"
        r"|64 → 65|16 → 17|8 → 9)$|^(keyword|arguments): run\(",
        "slightly other sizes, or another number of calls, show the same "
        "fault and hide the others",
    ),
    (
        "benchmark_fault",
        r"^comparison: (seconds|run\(1, 512|short)",
        "times and counts are far from the limits that they are compared with",
    ),
    (
        "bottleneck",
        r"^arguments: run\(B, H|^number: (2 → 3|3 → 4)$",
        "batch and heads enter alike, and a threefold length or width "
        "separates the same",
    ),
    (
        "bottleneck",
        r"^comparison: (longer|wider)",
        "times grow by factors of 1, 2 or 4",
    ),
    ("relative_bias", r"distances\(keys", "the exercise says that T equals S"),
    ("relative_bias", r"columns \* 2", REFUSED),
    ("*", r"^arg.*→ (min|max|torch\.(maximum|logaddexp))\(", NO_ORDER),
    ("intensity", r"→ flops\(H, B, G", "batch and heads are only multiplied"),
    (
        "online_softmax",
        r"number: 0\.0 → 1\.0",
        "the start is multiplied by exp(-inf); a hidden row may be shifted by "
        "any finite number",
    ),
    ("merge", r"number: 0\.0 → 1\.0", "any finite shift of an empty row"),
    ("longformer_mask", r"^sides: index", "a distance has no direction"),
    ("linear_attention", r"sign: -2 → 2", "of four axes, 2 is the same as -2"),
    (
        "pattern_counts",
        r"length - 1 → (length \+ 1|1 - length)|number: 1 → 2",
        "the first of the sets is only compared with the second, and the last "
        "two are equal",
    ),
    (
        "linear_fault",
        r"^arguments: differ\(",
        "whether two tensors differ has no order",
    ),
    (
        "linear_fault",
        r"number: (20 → 21|3 → 4|0 → 1|1 → 2)|→ (weights|gradient)\[",
        "another length, width, position or sum shows the same fault",
    ),
    (
        "memory_kind",
        r"^comparison: .* > .* → .* >= ",
        "what the kinds return lies far from these limits",
    ),
    (
        "memory_kind",
        r"number: (100\.0 → 101\.0|0 → 1|1 → 2)",
        "any large value outside of the window shows the same",
    ),
    (
        "attention_rollout",
        r"number: 1 → 2",
        "the last two axes have the same length",
    ),
    (
        "ablation_fault",
        r"^arguments: differ\(",
        "whether two tensors differ has no order",
    ),
    (
        "ablation_fault",
        r"number: (0 → 1|8 → 9|1 → 2)|\+ 1 → |^keyword: torch\.randn",
        "other random numbers, another number of positions, and another change "
        "of the last one show the same fault",
    ),
    (
        "ablation_fault",
        r"^method: .*\.any → ",
        "no entry of the bias is 0: without heads, all entries are 0 or none",
    ),
    (
        "patches",
        r"require_division",
        REFUSED,
    ),
    ("gated_cross_attention", r"number: (0 → 1|1 → 2)", REFUSED),
    (
        "graph_fault",
        r"^arguments: differ\(",
        "whether two tensors differ has no order",
    ),
    (
        "graph_fault",
        r"^(number|keyword: torch\.randn|arguments: run)",
        "other random numbers and other edges show the same fault",
    ),
    (
        "graph_fault",
        r"^method: .*\.any → ",
        "no entry of W h is 0: of a node's output, all entries are 0 or none",
    ),
    (
        "map_kind",
        r"^number|^comparison: weights > ",
        "a square that is a pixel smaller and other patches of the background "
        "show the same, and no weight is as large as the bound",
    ),
    (
        "head_kind",
        r"number: (9 → 10|5 → 6|6 → 7|20 → 21|30 → 31|1 → 2)",
        "other tokens that occur once show the same, and so does the position "
        "before the last",
    ),
    (
        "predicted_weights",
        r"number: 1 → 2",
        "the sum, by which all are divided, removes a common factor",
    ),
    (
        "score_kind",
        r"number: (1\.0 → 2\.0|2\.0 → 3\.0)",
        "the nearest key, and the largest dot product, remain the same",
    ),
    (
        "head_explanation",
        r"number: (0 → 1|1 → 2)",
        "another number of added words shows the same",
    ),
    (
        "copying_heads",
        r"^comparison: .*(0\.9|0\.5)$",
        "no weight and no share is as large as the bound",
    ),
    (
        "attention_fault|layer_fault",
        r"^arguments: (differ|equal|torch\.allclose)\(",
        "whether two tensors are equal has no order",
    ),
    (
        "attention_fault|layer_fault",
        r"^keyword: torch\.(allclose|randn)",
        "a fault changes more than either tolerance, with any random numbers",
    ),
    (
        "attention_fault|layer_fault",
        r"^number: 0 → 1$",
        "another seed shows the same fault",
    ),
    (
        "attention_fault",
        r"number: (1 → 2|2 → 3|3 → 4)|torch\.ones\(5, 1\)",
        "one padded, changed or compared row more shows the same fault; ones "
        "of another shape are compared with the same numbers",
    ),
    (
        "attention_fault",
        r"^method: .*\.any → ",
        "where padding gets weight, it gets it in every row",
    ),
    (
        "layer_fault",
        r"C \* 0\.5|0\.5 → 1\.5",
        "projections of another size show the same fault",
    ),
)


def find_reason(check: str, mutant: str) -> str | None:
    """Return why a mutant does the same as the solution, if that is known."""
    name = check.removeprefix("check_")
    return next(
        (
            why
            for whose, pattern, why in RULES
            if whose == "*" or name in whose.split("|")
            if re.search(pattern, mutant)
        ),
        None,
    )
