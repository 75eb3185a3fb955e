"""What attention costs: counted by formula, and traced in a running program.

In reading order: sizes (what is counted), steps (of attention, forwards and
backwards), tracing (the same of any call, as it runs), memory, allocations
(the memory meter), block (the rest of a Transformer), timing, roofline,
exponentials, presets, calculator, kernel_time.
"""

from attnbook.profiling.sizes import Count, Sizes, add_counts

__all__ = ["Count", "Sizes", "add_counts"]
