"""Which names a cell binds, and which it reads from the cells before it.

Notebook cells are parsed, not run, since pages are built without PyTorch.
"""

import ast
import re

MAGIC = re.compile(r"(?m)^(\s*)[%!].*")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def parse(source: str) -> ast.Module:
    """Return a cell's syntax tree; IPython's magic lines become `pass`."""
    return ast.parse(MAGIC.sub(r"\1pass", source))


class NameCollector(ast.NodeVisitor):
    """Follows a cell in the order in which Python runs it.

    A function's body counts as read where the function is defined: what it
    then looks up may have been bound by an earlier cell.

    Attributes:
        bound: names that the cell binds at its top level.
        read: names that it reads before it has bound them itself.
    """

    def __init__(self):
        self.bound: set[str] = set()
        self.read: set[str] = set()
        self.local: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        """Read or bind a name."""
        if isinstance(node.ctx, ast.Load):
            if not any(node.id in names for names in [self.bound, *self.local]):
                self.read.add(node.id)
        else:
            self.bind(node.id)

    def bind(self, name: str) -> None:
        """Bind a name in the innermost scope."""
        (self.local[-1] if self.local else self.bound).add(name)

    def visit_alias(self, node: ast.alias) -> None:
        """Bind what an import brings."""
        self.bind((node.asname or node.name).partition(".")[0])

    def visit_Assign(self, node: ast.Assign) -> None:
        """The value is computed before its name is bound."""
        self.visit_all([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`x += 1` reads x as well."""
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        self.visit_all([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """`(x := 1)` binds x outside of a comprehension."""
        self.visit(node.value)
        self.bound.add(node.target.id)

    def visit_For(self, node: ast.For) -> None:
        """The sequence is computed before the loop binds its names."""
        self.visit_all([node.iter, node.target, *node.body, *node.orelse])

    def visit_all(self, nodes) -> None:
        """Visit nodes one after another."""
        for node in nodes:
            self.visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit a node's parts; functions and comprehensions have a scope."""
        if isinstance(node, SCOPES):
            self.visit_function(node)
        elif isinstance(node, COMPREHENSIONS):
            self.visit_comprehension(node)
        elif isinstance(node, ast.ClassDef):
            self.visit_all([*node.decorator_list, *node.bases])
            self.visit_all(node.keywords)
            self.visit_scope(node.body, set())
            self.bind(node.name)
        elif isinstance(node, ast.ExceptHandler):
            if node.name:
                self.bind(node.name)
            super().generic_visit(node)
        else:
            super().generic_visit(node)

    def visit_scope(self, nodes, names: set[str]) -> None:
        """Visit nodes in a scope of their own, which begins with names."""
        self.local.append(names)
        self.visit_all(nodes)
        self.local.pop()

    def visit_function(self, node) -> None:
        """Defaults belong outside, parameters and the body inside."""
        a = node.args
        self.visit_all([*a.defaults, *(x for x in a.kw_defaults if x)])
        self.visit_all(getattr(node, "decorator_list", []))
        if name := getattr(node, "name", None):
            self.bind(name)
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
        body = node.body if isinstance(node.body, list) else [node.body]
        stored = {
            x.id
            for part in body
            for x in ast.walk(part)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        }
        self.visit_scope(body, {x.arg for x in given if x} | stored)

    def visit_comprehension(self, node) -> None:
        """The first sequence belongs outside, everything else inside."""
        first, *others = node.generators
        self.visit(first.iter)
        self.local.append(set())
        self.visit_all([first.target, *first.ifs])
        for one in others:
            self.visit_all([one.iter, one.target, *one.ifs])
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else []
        self.visit_all(made or [node.elt])
        self.local.pop()


def find_names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell binds, and those it reads from before."""
    names = NameCollector()
    names.visit(parse(source))
    return names.bound, names.read


def find_needed_later(sources: list[str]) -> list[set[str]]:
    """Return, for every cell, the names it binds that a later cell reads."""
    needed, found = set(), []
    for source in reversed(sources):
        bound, read = find_names(source)
        found.append(bound & needed)
        needed = (needed - bound) | read
    return found[::-1]
