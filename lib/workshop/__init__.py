"""workshop: what makes the book, used from a clone of its repository.

Its packages are layers; each may import those above it in this list, and all
of `attnbook`:

- `derive`: makes the data files from their sources.
- `bench`: times the kernels, and runs what needs a GPU.
- `experiments`: the code of recorded runs.
- `book`: builds the pages.

`chapters.toml` says which chapter builds which module of `attnbook`; every
layer may read it by `chapters`.

`attnbook` never imports this package, and its wheel does not contain it.
"""
