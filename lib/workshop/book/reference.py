"""Reference pages: each public function and class, from its code.

One page a package. A function or class is listed with its signature, in which
annotations give the shapes, the first paragraph of its docstring, and, for
`attnbook`, the chapter that builds its module. The pages of `attnbook` are part
of the book. Readers do not need those of `workshop`: each is the README of its
package's folder. The source is parsed, not imported.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workshop.chapters import find_chapter

Definition = ast.FunctionDef | ast.ClassDef
LIBRARY, WORKSHOP = Path("lib/attnbook"), Path("lib/workshop")
FOLDER = Path("chapters/reference")
WIDTH = 72
HEAD = """# Reference: {name}

{about}

This page is made from the code by `make pages`. A shape such as `*#B T D` names
the axes of a tensor; [the notation page](../notation.md) says what each letter
counts.
"""
WORKSHOP_HEAD = """# workshop.{name}

{about}

This page is made from the code by `make pages`, for those who work on the book.
"""


def list_packages(library: Path = LIBRARY) -> list[Path]:
    """Return the folders of the packages, in alphabetical order."""
    return sorted(path.parent for path in library.glob("*/__init__.py"))


def read_first_paragraph(node: Definition | ast.Module) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = ast.get_docstring(node) or ""
    return " ".join(text.partition("\n\n")[0].split())


def is_public(name: str) -> bool:
    """Tell whether a name is public."""
    return not name.startswith("_")


def list_definitions(tree: ast.Module) -> Iterator[Definition]:
    """Yield a module's public functions and classes, as they are listed."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, kinds) and is_public(node.name):
            yield node


class ShapeExpander(ast.NodeTransformer):
    """Writes the shape instead of its name, as in `Heads = Float[...]`.

    Args:
        tree: the module that names shapes.
    """

    def __init__(self, tree: ast.Module):
        self.shapes = {
            ast.unparse(node.targets[0]): node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and re.match(r"\w+\[Tensor, '", ast.unparse(node.value))
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the shape that a name stands for, or the name."""
        return self.shapes.get(node.id, node)


def list_parameters(function: ast.FunctionDef, bound: bool = False) -> list[str]:
    """Return a function's parameters with annotations and defaults.

    Args:
        function: the parsed function.
        bound: whether its first parameter is left out, as of a method.
    """
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults = [None] * (len(plain) - len(spec.defaults)) + spec.defaults
    rows = [write_parameter(*pair) for pair in zip(plain, defaults, strict=True)]
    rows = rows[1:] if bound else rows
    if spec.vararg:
        rows.append("*" + write_parameter(spec.vararg))
    elif spec.kwonlyargs:
        rows.append("*")
    pairs = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    rows += [write_parameter(*pair) for pair in pairs]
    if spec.kwarg:
        rows.append("**" + write_parameter(spec.kwarg))
    return rows


def write_parameter(arg: ast.arg, default: ast.expr | None = None) -> str:
    """Return one parameter as it is written in a signature."""
    kind = f": {ast.unparse(arg.annotation)}" if arg.annotation else ""
    if default is None:
        return arg.arg + kind
    equals = " = " if kind else "="
    return f"{arg.arg}{kind}{equals}{ast.unparse(default)}"


def list_constructor_parameters(node: ast.ClassDef) -> list[str]:
    """Return the parameters of a class's constructor, or its fields."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return list_parameters(item, bound=True)
    return [
        ast.unparse(item)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and is_public(item.target.id)
    ]


def write_signature(name: str, rows: list[str], returns: str = "") -> str:
    """Return a signature, one parameter a line where it is long."""
    tail = f") -> {returns}" if returns else ")"
    line = f"{name}({', '.join(rows)}{tail}"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {row},\n" for row in rows)
    return f"{name}(\n{inner}{tail}"


def list_methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield a class's public methods; `forward` and `__call__` are public."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            shown = is_public(item.name) or item.name == "__call__"
            if shown:
                yield item


def write_return_type(function: ast.FunctionDef) -> str:
    """Return a function's annotated result; nothing where there is none."""
    return ast.unparse(function.returns) if function.returns else ""


def describe_definition(node: Definition) -> str:
    """Return the section of a function or class."""
    if isinstance(node, ast.FunctionDef):
        code = [
            write_signature(node.name, list_parameters(node), write_return_type(node))
        ]
        return write_section(node.name, code, read_first_paragraph(node))
    code = [write_signature(node.name, list_constructor_parameters(node))]
    for method in list_methods(node):
        static = any(
            getattr(x, "id", "") == "staticmethod" for x in method.decorator_list
        )
        rows = list_parameters(method, bound=not static)
        code.append(
            write_signature(
                f"{node.name}.{method.name}", rows, write_return_type(method)
            )
        )
    return write_section(node.name, code, read_first_paragraph(node))


def write_section(name: str, code: list[str], about: str) -> str:
    """Return a heading, signatures and a paragraph."""
    block = "\n".join(code)
    return f"### {name}\n\n```python\n{block}\n```\n\n{about}\n"


def describe_exercises(tree: ast.Module) -> Iterator[str]:
    """Yield the section of each exercise that a module declares."""
    for node in tree.body:
        value = getattr(node, "value", None)
        called = getattr(getattr(value, "func", None), "id", "")
        if not isinstance(node, ast.Assign) or called != "Exercise":
            continue
        given: dict[str | None, Any] = {
            key.arg: key.value.value
            for key in value.keywords
            if isinstance(key.value, ast.Constant)
        }
        name = ast.unparse(node.targets[0])
        text = (
            f"Exercise: {given['title']}. {'★' * given['stars']}, "
            f"{given['minutes']} minutes."
        )
        yield write_section(name, [f"{name}(attempt) -> Verdict"], text)


def link_chapter(module: str) -> str:
    """Return in which chapter a module is built, as a sentence or nothing."""
    if module.startswith(f"{WORKSHOP.name}."):
        return ""
    chapter = find_chapter(module)
    if not re.match(r"\d\d_", chapter):
        return "Used in every chapter."
    number = int(chapter[:2])
    if not (FOLDER.parent / f"{chapter}.md").exists():
        return f"For chapter {number}, which is not written yet."
    return f"Built in [chapter {number}](../{chapter}.ipynb)."


def describe_module(path: Path, library: Path = LIBRARY) -> str:
    """Return the part of a page that describes one module; may be empty."""
    tree = ast.parse(path.read_text("utf8"))
    tree = ShapeExpander(tree).visit(tree)
    # A chapter's exercises are shown; the helpers of their cases are not.
    inner = path.parent.parent.name == "exercises"
    listed = () if inner else list_definitions(tree)
    parts = [describe_definition(node) for node in listed] + [*describe_exercises(tree)]
    if not parts:
        return ""
    place = path.relative_to(library.parent).with_suffix("")
    name = ".".join(place.parts).removesuffix(".__init__")
    about = read_first_paragraph(tree)
    about = f"{about} {link_chapter(name)}".rstrip()
    return "\n".join([f"## {name}\n\n{about}\n", *parts])


def write_reference(package: Path, library: Path = LIBRARY) -> str:
    """Return the reference page of a package.

    Raises:
        ValueError: if a public function or class has no docstring; the message
            names it and its file.
    """
    about = ast.parse((package / "__init__.py").read_text("utf8"))
    head = WORKSHOP_HEAD if library.name == WORKSHOP.name else HEAD
    parts = [head.format(name=package.name, about=read_first_paragraph(about))]
    for path in sorted(package.rglob("*.py")):
        for node in list_definitions(ast.parse(path.read_text("utf8"))):
            if not read_first_paragraph(node):
                raise ValueError(f"{path}: {node.name} has no docstring")
        parts.append(describe_module(path, library))
    return "\n".join(filter(None, parts))


def write_reference_pages() -> dict[str, str]:
    """Return every reference page by its path."""
    pages = {
        str(FOLDER / f"{path.name}.md"): write_reference(path)
        for path in list_packages()
    }
    for path in list_packages(WORKSHOP):
        pages[str(path / "README.md")] = write_reference(path, WORKSHOP)
    return pages
