"""The Transformer's parts against PyTorch's modules, within the error budget.

The same weights in both; forward, and backward with a random upstream, to the
inputs and to every parameter. The truth is PyTorch's module in double
precision. A layer norm and a block are judged in single precision, and again
in double: a bound on the worst case grows with every sublayer (errors that
partly cancel are added up), and behind a norm whose input is thirty times as
large as usual, single precision has no digit left that could be guaranteed.

Each layer of a stack is judged on what PyTorch's stack hands to it. That the
layers follow each other in the right order is asked of the output alone: it
must share half of double precision's digits with PyTorch's.

`python tests/attnbook/models/test_from_pytorch.py` prints the largest share of
the budget of each part, and the smallest of a layer norm whose ε is 10⁻³.
"""

import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest
import torch
from torch import nn
from torch.func import functional_call

from attnbook.attention.error_budget import (
    Bounded,
    error_budget,
    share_of_budget,
)
from attnbook.attention.self_attention import causal_mask
from attnbook.models.from_pytorch import copy_block, copy_stack
from attnbook.models.layer_norm import LayerNorm
from attnbook.models.transformer import Size
from attnbook.models.transformer_blocks import (
    DecoderBlock,
    EncoderBlock,
    PostNorm,
    PreNorm,
)
from attnbook.training.progress import make_progress_bar

B, T, S, C, H, HIDDEN, BLOCKS = 3, 5, 7, 12, 3, 17, 3
LENGTHS = torch.tensor([S, 4, 2])
PARTS = ("layer norm", "encoder block", "decoder block", "encoder", "decoder")
MASKS = ("none", "causal", "padding", "both")
SIZES = (0.1, 1.0, 30.0)


@dataclass(frozen=True)
class Case:
    """A part of the Transformer, and what it is given."""

    part: str
    residual: type = PostNorm
    mask: str = "none"
    size: float = 1.0


CASES = [Case("layer norm", size=size) for size in SIZES] + [
    Case(*case) for case in product(PARTS[1:], (PostNorm, PreNorm), MASKS, SIZES)
]


class Stack(nn.Module):
    """Our blocks and what follows the last, called as PyTorch's stacks are."""

    def __init__(self, residual, block):
        super().__init__()
        size = Size(C, H, HIDDEN, BLOCKS, residual=residual)
        self.blocks = size.stack(block)
        self.last = residual.make_final_norm(C)

    def forward(self, x, *more):
        for block in self.blocks:
            x = block(x, *more)
            x = x[0] if isinstance(x, tuple) else x
        return self.last(x)


def theirs(case):
    """PyTorch's module of this case, its weights uneven."""
    first = case.residual is PreNorm
    more = {"dropout": 0.0, "batch_first": True, "norm_first": first}
    if case.part == "layer norm":
        module = nn.LayerNorm(C)
    elif "encoder" in case.part:
        module = nn.TransformerEncoderLayer(C, H, HIDDEN, **more)
    else:
        module = nn.TransformerDecoderLayer(C, H, HIDDEN, **more)
    last = nn.LayerNorm(C) if first else None
    if case.part == "encoder":
        module = nn.TransformerEncoder(module, BLOCKS, last, enable_nested_tensor=False)
    if case.part == "decoder":
        module = nn.TransformerDecoder(module, BLOCKS, last)
    with torch.no_grad():
        for x in module.parameters():
            x.add_(0.2 * torch.randn_like(x))
    return module


def ours(case, other):
    """Our module with the same weights, in the same precision."""
    dtype = next(other.parameters()).dtype
    block = EncoderBlock if "encoder" in case.part else DecoderBlock
    if case.part == "layer norm":
        module = LayerNorm(C).to(dtype)
        module.load_state_dict(other.state_dict())
    elif case.part.endswith("block"):
        module = block(C, H, HIDDEN, residual=case.residual).to(dtype)
        copy_block(module, other)
    else:
        module = Stack(case.residual, block).to(dtype)
        copy_stack(module.blocks, other)
        if case.residual is PreNorm:
            module.last.load_state_dict(other.norm.state_dict())
    return module


def call_theirs(case, module, inputs):
    """PyTorch's call: in its masks True = may not look."""
    past = ~causal_mask(T, T) if case.mask in ("causal", "both") else None
    hidden = torch.arange(S) >= LENGTHS[:, None]
    hidden = hidden if case.mask in ("padding", "both") else None
    if case.part == "layer norm":
        return module(*inputs)
    if "decoder" in case.part:
        more = {"memory_key_padding_mask": hidden}
        return module(*inputs, tgt_mask=past, **more)
    more = {"src_key_padding_mask": None if hidden is None else hidden[:, :T]}
    name = "mask" if case.part == "encoder" else "src_mask"
    return module(*inputs, **{name: past}, **more)


def call_ours(case, module, inputs):
    """Our call: one mask, True = can attend."""
    past = causal_mask(T, T) if case.mask in ("causal", "both") else None
    real = torch.arange(S) < LENGTHS[:, None, None, None]
    real = real if case.mask in ("padding", "both") else None
    if case.part == "layer norm":
        return module(*inputs)
    if "decoder" in case.part:
        output = module(*inputs, past, real)
        return output[0] if isinstance(output, tuple) else output
    some = None if real is None else real[..., :T]
    both = some if past is None else past if some is None else past & some
    return module(*inputs, both)


def inputs_of(case):
    seed = torch.Generator().manual_seed(CASES.index(case))
    x, memory, upstream = (
        case.size * torch.randn(B, n, C, generator=seed) for n in (T, S, T)
    )
    inputs = [x, memory] if "decoder" in case.part else [x]
    return [*inputs, upstream / case.size]


def results(call, case, module, inputs, upstream, dtype):
    """Return output and gradients of the inputs; those of weights in place."""
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    output = call(case, module, inputs)
    weights = [*module.parameters()]
    grads = torch.autograd.grad(output, inputs + weights, upstream.to(dtype))
    with torch.no_grad():
        for weight, grad in zip(weights, grads[len(inputs) :], strict=True):
            weight.copy_(grad)
    return [x.detach() for x in (output, *grads[: len(inputs)])]


def named(found, module):
    names = ("output", "x", "memory")[: len(found)]
    grads = {n: x.detach() for n, x in module.named_parameters()}
    return dict(zip(names, found, strict=True)) | grads


def allowed(case, module, inputs, upstream, dtype):
    """Return the error allowed in each result of a module of ours."""
    names = [name for name, _ in module.named_parameters()]

    def function(*given):
        some, weights = given[: len(inputs)], given[len(inputs) :]
        held = dict(zip(names, weights, strict=True))
        return call_ours(case, lambda *x: functional_call(module, held, x), some)

    every = [*inputs, *module.parameters()]
    found = error_budget(function, every, upstream, dtype)
    keys = ("output", "x", "memory")[: 1 + len(inputs)]
    limits = (bounded.allowed for bounded in found)
    return dict(zip((*keys, *names), limits, strict=True))


def layers(case, stack, inputs):
    """Return a stack's layers: case, layer, and the inputs handed to it."""
    if case.part in ("layer norm", "encoder block", "decoder block"):
        return [(case, stack, inputs)]
    last = [stack.norm] if stack.norm is not None else []
    found, handles = [], []
    for layer in (*stack.layers, *last):
        part = "layer norm" if layer is stack.norm else f"{case.part} block"

        def note(layer, given, part=part):
            more = [] if part == "layer norm" else inputs[1:]
            first = given[0].detach().to(inputs[0].dtype)
            found.append((replace(case, part=part), layer, [first, *more]))

        handles.append(layer.register_forward_pre_hook(note))
    call_theirs(case, stack, inputs)
    for handle in handles:
        handle.remove()
    return found


@cache
def judged(case, dtype):
    """Return of each layer: case, our module, inputs, upstream, and budgets.

    A module whose parameters have become their gradients is carried over to
    our names just as one with weights is.
    """
    made = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(CASES.index(case))
        stack = theirs(case)
        *inputs, upstream = inputs_of(case)
        mine = ours(case, stack)
        parts = [*mine.blocks, mine.last] if hasattr(mine, "blocks") else [mine]
        for i, (each, layer, given) in enumerate(layers(case, stack, inputs)):
            right = copy.deepcopy(layer).double()
            more = given, upstream
            limits = allowed(each, ours(each, right), *more, dtype)
            true = results(call_theirs, each, right, *more, torch.float64)
            bounds = {
                n: Bounded(x, limits[n])
                for n, x in named(true, ours(each, right)).items()
            }
            made.append((each, parts[i].to(dtype), *more, bounds))
    return made


def shares(case, dtype, change=None):
    """Return the share of the budget of the output, and of each gradient.

    Args:
        case: what is compared.
        dtype: the precision of our module.
        change: makes it wrong.
    """
    found = {}
    for i, (each, part, *more, bounds) in enumerate(judged(case, dtype)):
        part = copy.deepcopy(part)
        if change is not None:
            change(part)
        one = named(results(call_ours, each, part, *more, dtype), part)
        for n, bounded in bounds.items():
            found[f"{n} of layer {i}"] = share_of_budget(one[n], bounded)
    return found


def precisions(case):
    """Return the precisions in which a case has a budget worth the name."""
    single = case.part == "layer norm" or case.size <= 1
    single = single and case.part not in ("encoder", "decoder")
    return (torch.float32, torch.float64) if single else (torch.float64,)


ALL = [(case, dtype) for case in CASES for dtype in precisions(case)]


# The order of layers is asked of the same blocks with the same shapes.
@pytest.mark.precision
@pytest.mark.parametrize(("case", "dtype"), ALL, ids=str)
def test_each_part_equals_pytorchs(case, dtype):
    found = shares(case, dtype)
    last = 4 * (case.residual is PreNorm)
    assert (
        len(found)
        == {
            "layer norm": 4,
            "encoder block": 18,
            "decoder block": 29,
            "encoder": BLOCKS * 18 + last,
            "decoder": BLOCKS * 29 + last,
        }[case.part]
    )
    assert max(found.values()) <= 1, max(found, key=found.get)


@torch.no_grad()
def apart(case, order):
    """Return the outputs' largest difference in terms of the largest number."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(CASES.index(case))
        other = theirs(case).double()
    mine = ours(case, other)
    mine.blocks = nn.ModuleList(mine.blocks[i] for i in order)
    inputs = [x.double() for x in inputs_of(case)[:-1]]
    one, two = call_ours(case, mine, inputs), call_theirs(case, other, inputs)
    return float((one - two).abs().max() / two.abs().max())


STACKS = [case for case in CASES if case.part in ("encoder", "decoder")]


@pytest.mark.parametrize("case", STACKS, ids=str)
def test_the_layers_of_a_stack_are_in_pytorchs_order(case):
    half = torch.finfo(torch.float64).eps ** 0.5
    assert apart(case, range(BLOCKS)) < half
    assert apart(case, (0, 2, 1)) > 1000 * half


def change_epsilon(module):
    """Set every layer norm's ε to 10⁻³."""
    for part in module.modules():
        if isinstance(part, LayerNorm):
            part.eps = 1e-3


def swap(*names):
    """Return a change that swaps parameters of two names."""

    @torch.no_grad()
    def change(module):
        one, two = map(module.get_parameter, names)
        held = one.clone()
        one.copy_(two)
        two.copy_(held)

    return change


def replace_parameter(name, make):
    """Return a change that makes one parameter another."""

    @torch.no_grad()
    def change(module):
        weight = module.get_parameter(name)
        weight.copy_(make(weight))

    return change


def swap_norms(module):
    """Normalize before sublayers instead of after them, or the reverse."""
    for part in module.residuals:
        wrong = PreNorm if type(part) is PostNorm else PostNorm
        part.__class__ = wrong


BLOCK_FAULTS = {
    "another ε": change_epsilon,
    "norms of two sublayers swapped": swap(
        "residuals.0.norm.weight", "residuals.1.norm.weight"
    ),
    "norms at the other place": swap_norms,
    "weights of query and key swapped": swap(
        "attention.query.weight", "attention.key.weight"
    ),
    "heads in another order": replace_parameter(
        "attention.value.weight", lambda x: x.roll(C // H, 0)
    ),
    "weights transposed": replace_parameter(
        "attention.output.weight", lambda x: x.mT.clone()
    ),
    "no bias": replace_parameter("feed_forward.down.bias", torch.zeros_like),
}
FAULTY = [
    (case, dtype, name)
    for case, dtype in ALL
    if case.part.endswith("block") and case.size == 1 and case.mask == "both"
    for name in BLOCK_FAULTS
    # In single precision, another ε is asked of the layer norm by itself.
    if (dtype, name) != (torch.float32, "another ε")
]


@pytest.mark.precision
@pytest.mark.parametrize(("case", "dtype", "name"), FAULTY, ids=str)
def test_a_wrong_block_exceeds_the_budget_five_times(case, dtype, name):
    assert max(shares(case, dtype, BLOCK_FAULTS[name]).values()) >= 5


def another_epsilon():
    """Return cases that a layer norm with another ε must fail."""
    for part in PARTS:
        yield Case(part, PostNorm if part == "layer norm" else PreNorm)


@pytest.mark.precision
@pytest.mark.parametrize("case", [*another_epsilon()], ids=str)
def test_another_epsilon_exceeds_the_budget_five_times(case):
    assert max(shares(case, torch.float64, change_epsilon).values()) >= 5
    if case.part == "layer norm":
        assert max(shares(case, torch.float32, change_epsilon).values()) >= 5


def main():
    """Print the largest share of each part, and the smallest of a wrong one."""
    table = {}
    for case, dtype in make_progress_bar(ALL):
        at = case.part, str(dtype)[6:]
        share = max((share, name) for name, share in shares(case, dtype).items())
        table[at] = max(table.get(at, (0.0,)), (*share, str(case)))
    wrong = {
        case.part: max(shares(case, torch.float64, change_epsilon).values())
        for case in another_epsilon()
    }
    print("| part | precision | tightest right | | ε = 10⁻³ in float64 |")
    print("|---|---|---|---|---|")
    for (part, kind), (share, name, case) in table.items():
        text = f"{share:.2g} | {name}, {case} | {wrong[part]:.2g}"
        print(f"| {part} | {kind} | {text} |")
    print(f"\n{len(ALL)} cases\n")
    print("| wrong block | precision | least share of its largest error |")
    print("|---|---|---|")
    for name in BLOCK_FAULTS:
        for dtype in (torch.float32, torch.float64):
            largest = [
                max(shares(case, dtype, BLOCK_FAULTS[name]).values())
                for case, kind, fault in FAULTY
                if (kind, fault) == (dtype, name)
            ]
            if largest:
                print(f"| {name} | {str(dtype)[6:]} | {min(largest):.3g} |")


if __name__ == "__main__":
    main()
