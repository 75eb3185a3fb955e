"""What attention costs: counted by formula, and traced in a running program.

In reading order: sizes (what is counted), steps (of attention, forwards and
backwards), traced (the same of any call, as it runs), memory, strips, block
(the rest of a Transformer), roofline, presets, calculator.

Chapter: chapters/10_cost
Source: none (see the modules)
Axes: none
"""

from attnbook.cost.sizes import Count, Sizes, total

__all__ = ["Count", "Sizes", "total"]
