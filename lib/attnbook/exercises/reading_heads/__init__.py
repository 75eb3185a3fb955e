"""Exercises of the chapter on reading attention, one module each."""

from attnbook.exercises.reading_heads.ablate_head import check_ablate_head
from attnbook.exercises.reading_heads.ablation_fault import (
    check_ablation_fault,
)
from attnbook.exercises.reading_heads.attention_rollout import (
    check_attention_rollout,
)
from attnbook.exercises.reading_heads.head_kind import check_head_kind
from attnbook.exercises.reading_heads.induction_score import (
    check_induction_score,
)
from attnbook.exercises.reading_heads.score_counts import check_score_counts

__all__ = [
    "check_ablate_head",
    "check_ablation_fault",
    "check_attention_rollout",
    "check_head_kind",
    "check_induction_score",
    "check_score_counts",
]
