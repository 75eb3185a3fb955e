"""What several files of cost rows use to call an attention at given sizes.

A file of cost rows has a dict CALLS. It gives, for the name of a row, a
function of the sizes that returns a call of the library's code and the
parameters. SIZES gives what a row needs otherwise: a function from the sizes,
as a dict, to those that change.
"""

import torch

from attnbook.attention.scaled_dot_product import attend


def equal_lengths(n):
    """As many keys as queries: a sequence that attends to itself."""
    return {"S": n["T"]}


def call_memory(build):
    """An attention of chapters 2 and 3: a query attends to encoder states."""

    def make(n):
        query, states = torch.randn(1, n.T, n.Dq), torch.randn(1, n.S, n.M)
        module, lengths = build(n), torch.tensor([n.S])

        def call():
            return module(query, module.key(states), states, lengths)

        return call, module.parameters()

    return make


def call_function(function):
    """A function of query, key and value, without heads."""

    def make(n):
        given = torch.randn(1, n.T, n.D), torch.randn(1, n.S, n.D)
        value = torch.randn(1, n.S, n.E)
        return lambda: function(*given, value), ()

    return make


def call_module(build):
    """A module of one sequence."""

    def make(n):
        made, x = build(n), torch.randn(1, n.T, n.C)
        return lambda: made(x), made.parameters()

    return make


def call_heads(build):
    """A function of query, key and value, with heads."""

    def make(n):
        query, key = (torch.randn(1, n.H, x, n.D) for x in (n.T, n.S))
        value = torch.randn(1, n.H, n.S, n.E)
        call, parameters = build(n)
        return lambda: call(query, key, value), parameters

    return make


def call_biased(build):
    """Attention with a bias that a module computes from the lengths."""

    def make(n):
        made = build(n)

        def call(query, key, value):
            return attend(query, key, value, bias=made(n.T, n.S))

        return call, made.parameters()

    return call_heads(make)
