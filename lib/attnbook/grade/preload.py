"""What the server of processes does once, before it forks any of them."""

import gc

import torch

from attnbook.grade import judge, notebook, process  # noqa: F401

torch.set_num_threads(1)
exercises = notebook.list_exercises()
# One check imports what the first use of a gradient imports, a second of work.
exercise = next(iter(exercises.values()))
data = process.write_data(exercise.run_attempt(exercise.solution, (notebook.FIRST,)))
exercise.judge(process.read_data(data))
# Otherwise the first garbage collection in each process visits, and so copies,
# every object of PyTorch's: half the time of a small notebook.
gc.collect()
gc.freeze()
