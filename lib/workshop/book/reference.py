"""Reference pages: each public function and class, from its code.

A function or class is listed with its signature, in which annotations give the
shapes, the first paragraph of its docstring, and the chapter that builds its
module. The source is parsed, not imported: building the book needs no PyTorch.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from workshop.chapters import find_chapter

WIDTH = 72
SHAPE = re.compile(r"\w+\[Tensor, '")


def write_reference(package: Path, root: Path) -> str:
    """Return what stands on the page of a package, below its heading."""
    return "\n".join(
        [
            read_about(parse(package / "__init__.py")),
            "",
            "A shape such as `*#B T D` names the axes of a tensor; "
            "[the notation page](../notation.md) says what each letter counts.",
            "",
            *(describe_module(path, root) for path in sorted(package.rglob("*.py"))),
        ]
    )


def parse(path: Path) -> ast.Module:
    """Return a module's syntax tree; names of shapes are written out."""
    tree = ast.parse(path.read_text("utf8"))
    shapes = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and SHAPE.match(ast.unparse(node.value))
    }

    class ShapeExpander(ast.NodeTransformer):
        def visit_Name(self, node):
            return shapes.get(node.id, node)

    return ShapeExpander().visit(tree)


def read_about(node) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def describe_module(path: Path, root: Path) -> str:
    """Return the section of a module; empty if nothing in it is public."""
    tree = parse(path)
    name = ".".join(path.relative_to(root / "lib").with_suffix("").parts)
    name = name.removesuffix(".__init__")
    # Of a chapter's exercises, the helpers that make their cases are not shown.
    sections = [*describe_exercises(tree)]
    if not sections and ".exercises." not in name.rpartition(".")[0]:
        sections = [*describe_definitions(tree)]
    if not sections:
        return ""
    chapter = find_chapter(name)
    built = "Used in every chapter."
    if chapter != "everywhere":
        built = f"Built in [chapter {int(chapter[:2])}](../{chapter}.ipynb)."
    return "\n".join([f"## {name}\n\n{read_about(tree)} {built}\n", *sections])


def describe_definitions(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and is_public(node):
            yield write_section(node.name, [write_signature(node)], read_about(node))
        elif isinstance(node, ast.ClassDef) and is_public(node):
            methods = [x for x in node.body if isinstance(x, ast.FunctionDef)]
            code = [write_constructor(node, methods)]
            for method in filter(is_public, methods):
                code.append(write_signature(method, f"{node.name}."))
            yield write_section(node.name, code, read_about(node))


def is_public(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return not node.name.startswith("_") or node.name == "__call__"


def describe_exercises(tree: ast.Module) -> Iterator[str]:
    """Yield the section of each exercise: what it is about, stars and minutes."""
    about = {x.name: read_about(x) for x in tree.body if isinstance(x, ast.FunctionDef)}
    for node in tree.body:
        call = getattr(node, "value", None)
        called = getattr(getattr(call, "func", None), "id", "")
        if not isinstance(node, ast.Assign) or called != "Exercise":
            continue
        given = {x.arg: getattr(x.value, "value", None) for x in call.keywords}
        solution = getattr(call.args[0], "id", "") if call.args else ""
        title = f"{given['title']}." if "title" in given else about.get(solution, "")
        stars = "★" * int(given["stars"])
        text = f"Exercise: {title} {stars}, {given['minutes']} minutes."
        name = ast.unparse(node.targets[0])
        yield write_section(name, [f"{name}(attempt) -> Verdict"], text)


def write_section(name: str, code: list[str], about: str) -> str:
    block = "\n".join(code)
    return f"### {name}\n\n```python\n{block}\n```\n\n{about}\n"


def write_signature(node: ast.FunctionDef, owner: str = "") -> str:
    static = any(ast.unparse(x) == "staticmethod" for x in node.decorator_list)
    rows = split_parameters(node.args)[1 if owner and not static else 0 :]
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return fold_signature(owner + node.name, rows, result)


def write_constructor(node: ast.ClassDef, methods: list[ast.FunctionDef]) -> str:
    """Return how a class is called: with its constructor's arguments or its fields."""
    for method in methods:
        if method.name == "__init__":
            return fold_signature(node.name, split_parameters(method.args)[1:])
    fields = [ast.unparse(x) for x in node.body if isinstance(x, ast.AnnAssign)]
    return fold_signature(node.name, [x for x in fields if not x.startswith("_")])


def split_parameters(spec: ast.arguments) -> list[str]:
    """Return parameters with annotations and defaults, one a string."""
    rows, depth = [""], 0
    for sign in ast.unparse(spec):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            rows.append("")
        else:
            rows[-1] += sign
    rows = [row.strip() for row in rows if row.strip()]
    return [row.replace("=", " = ", 1) if ": " in row else row for row in rows]


def fold_signature(name: str, rows: list[str], result: str = "") -> str:
    line = f"{name}({', '.join(rows)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n{''.join(f'    {row},{chr(10)}' for row in rows)}){result}"
