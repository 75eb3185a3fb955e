"""Mutants: every small change of a solution, made by a tool.

Each changes one operator, number, comparison, argument or statement of the
solution's source.
"""

import ast
import copy
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator

BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
METHODS = {
    "softmax": "log_softmax",
    "sum": "mean",
    "mean": "sum",
    "amax": "amin",
    "argmax": "argmin",
    "tanh": "sigmoid",
    "sigmoid": "tanh",
    "exp": "abs",
    "any": "all",
    "all": "any",
    "tril": "triu",
    "triu": "tril",
    "max": "min",
    "min": "max",
    "cos": "sin",
    "sin": "cos",
    "flip": "abs",
}


def list_changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in a node's place, with a word for it."""
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield "operator", replace_field(node, "op", BINARY[type(node.op)]())
        if not isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
            yield (
                "sides",
                replace_fields(node, left=node.right, right=node.left),
            )
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        other = [COMPARED[type(node.ops[0])](), *node.ops[1:]]
        yield "comparison", replace_field(node, "ops", other)
    if isinstance(node, ast.UnaryOp):
        yield "sign", node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.Attribute) and node.attr in METHODS:
        yield "method", replace_field(node, "attr", METHODS[node.attr])
    if isinstance(node, ast.Call):
        if len(node.args) > 1:
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            yield "arguments", replace_field(node, "args", swapped)
        for i in range(len(node.keywords)):
            left = node.keywords[:i] + node.keywords[i + 1 :]
            yield "keyword", replace_field(node, "keywords", left)
    if isinstance(node, ast.If | ast.IfExp):
        no = ast.UnaryOp(ast.Not(), node.test)
        yield "condition", replace_field(node, "test", no)
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.For):
        yield "statement", ast.Pass()


def replace_field(node: ast.AST, name: str, value: object) -> ast.AST:
    return replace_fields(node, **{name: value})


def replace_fields(node: ast.AST, **fields) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


class Swap(ast.NodeTransformer):
    """Puts another node in one node's place."""

    def __init__(self, old: ast.AST, new: ast.AST):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def make_mutants(solution: Callable) -> Iterator[tuple[str, Callable]]:
    """Yield each mutant of a solution with what was changed, in words."""
    source = textwrap.dedent(inspect.getsource(solution))
    count = sum(1 for _ in list_places(ast.parse(source)))
    for nth in range(count):
        tree = ast.parse(source)
        word, old, new = list(list_places(tree))[nth]
        line = ast.unparse(old).splitlines()[0]
        message = f"{word}: {line} → {ast.unparse(new).splitlines()[0]}"
        mutated = ast.fix_missing_locations(Swap(old, new).visit(tree))
        names = dict(vars(sys.modules[solution.__module__]))
        exec(compile(mutated, "mutant", "exec"), names)
        yield message, names[solution.__name__]


def list_places(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield each change in the body of a function; its docstring stays."""
    function = tree.body[0]
    function.returns, function.decorator_list = None, []
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    for statement in function.body[1:]:
        for node in ast.walk(statement):
            for word, new in list_changes(node):
                if ast.dump(new) == ast.dump(node):
                    continue
                yield word, node, new
