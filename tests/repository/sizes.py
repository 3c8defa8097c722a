"""How large modules, classes and functions are, by the syntax tree."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.repository.checkout import parsed, relative

LIMITS = {
    "module lines": 400,
    "function lines": 40,
    "public methods": 12,
    "positional parameters": 4,
    "nesting": 3,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


@dataclass(frozen=True, slots=True)
class Size:
    """One measure of one thing; `name` is its path and the way to it in the module."""

    rule: str
    name: str
    value: int


def measure(path: Path, ports: list[set[str]]) -> Iterator[Size]:
    """Every measure of a module. `ports` are the method names of each port."""
    name = relative(path)
    yield Size("module lines", name, len(path.read_text().splitlines()))
    for way, node in _definitions(parsed(path), ""):
        if isinstance(node, ast.ClassDef):
            yield Size("public methods", f"{name}::{way}", _public_methods(node, ports))
            continue
        yield Size("function lines", f"{name}::{way}", _lines(node))
        yield Size("positional parameters", f"{name}::{way}", _positional(node))
        yield Size("nesting", f"{name}::{way}", _nesting(node.body))


def port_methods(path: Path) -> list[set[str]]:
    """The method names of each Protocol in a module: what an implementation has to have."""
    return [
        _method_names(node)
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    ]


def _definitions(parent: ast.AST, way: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    for node in _parts(parent):
        if isinstance(node, ast.ClassDef | Function):
            here = f"{way}.{node.name}" if way else node.name
            yield here, node
            yield from _definitions(node, here)
        else:
            yield from _definitions(node, way)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Statements and what holds them. Expressions have neither definitions nor blocks."""
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def _method_names(node: ast.ClassDef) -> set[str]:
    return {child.name for child in node.body if isinstance(child, Function)}


def _public_methods(node: ast.ClassDef, ports: list[set[str]]) -> int:
    """Without those that a port prescribes, where the class implements all of it."""
    names = {name for name in _method_names(node) if not name.startswith("_")}
    for port in ports:
        if port <= names:
            names -= port
    return len(names)


def _lines(node: Function) -> int:
    """From `def` to the end, without the docstring: a contract may be as long as it needs."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    match node.body[0]:
        case ast.Expr(ast.Constant(str())) as docstring:
            return whole - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)
    return whole


def _positional(node: Function) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _nesting(body: list[ast.stmt]) -> int:
    return max((_depth(statement) for statement in body), default=0)


def _depth(node: ast.AST) -> int:
    """How many blocks lie in each other; `elif` is as deep as its `if`, inner functions are not."""
    if isinstance(node, ast.ClassDef | Function | ast.Lambda):
        return 0
    children = list(_parts(node))
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        children = [child for child in children if child is not node.orelse[0]]
        chained = _depth(node.orelse[0])
    else:
        chained = 0
    inner = max((_depth(child) for child in children), default=0)
    return max(chained, inner + isinstance(node, BLOCKS))
