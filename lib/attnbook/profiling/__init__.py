"""What attention costs: counted by formula, and traced in a running program.

In reading order: sizes (what is counted), steps (of attention and of a block),
allocations (the same of any call, as it runs), memory, timing, roofline.
"""

from attnbook.profiling.sizes import Count, Sizes, add_counts

__all__ = ["Count", "Sizes", "add_counts"]
