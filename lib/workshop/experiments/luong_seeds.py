"""Three further seeds of the dot and the general score, on the grammar.

On sentences longer than those trained on, the first three seeds of both scores
differ widely; chapter 3 compares six of each there.
"""

from attnbook.training.run import change_seed
from workshop.experiments.registry import register_runs
from workshop.experiments.runs import SHORT_TALK

RUNS = {
    f"grammar_further_{score}_{seed}": change_seed(SHORT_TALK, seed, score=score)
    for score in ("dot", "general")
    for seed in (3, 4, 5)
}
register_runs(RUNS, __name__)
