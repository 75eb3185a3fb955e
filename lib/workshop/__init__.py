"""workshop: what makes the book, used from a clone of its repository.

`book` builds the pages, `experiments` holds the code of recorded runs, `bench`
times the kernels, `derive` makes the data files from their sources, and
`chapters.toml` says which chapter builds which module of `attnbook`.

`attnbook` never imports this package, and its wheel does not contain it.
"""
