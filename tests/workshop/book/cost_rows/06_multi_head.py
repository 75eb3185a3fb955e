"""Chapter 6: multi-head, grouped-query and multi-query attention."""

from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from cost_calls import call_module, equal_lengths

CALLS = {
    "multi-head": call_module(lambda n: MultiHeadAttention(n.C, n.H)),
    "grouped-query": call_module(lambda n: GroupedQueryAttention(n.C, n.H, n.G)),
    "multi-query": call_module(lambda n: GroupedQueryAttention(n.C, n.H, 1)),
}
SIZES = dict.fromkeys(CALLS, equal_lengths)
