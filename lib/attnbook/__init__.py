"""attnbook: the tested code behind the book *Attention, Measured*.

A package imports only itself and packages above it in this list:

- `records`: results of recorded runs
- `data`: corpora, vocabularies, characters
- `masks`: which positions a query can attend to
- `positions`: positional encodings
- `attention`: the reference implementation and its relatives
- `flash`: FlashAttention in Triton
- `profiling`: counting FLOPs and bytes, rooflines, memory
- `models`: encoder-decoders, Transformers, small models of single chapters
- `parallel`: attention over several processes or devices
- `training`: batches, the training loop, decoding, metrics
- `diagnose`: tests of a model's behavior
- `figures`: how the book draws
- `widgets`: interactive figures
- `exercises`: exercises that grade themselves, and quizzes
- `grade`: grading of notebooks

Importing `attnbook` itself imports nothing else, in particular no torch.
"""

__version__ = "0.1.0"
