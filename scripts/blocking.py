"""Write `paddock.interfaces.client.blocking`: the SDK's classes for programs without an event loop.

Every public method of the asynchronous classes becomes one that goes through the portal, with the
same parameters, types and words. Nothing else is in them.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "src" / "paddock" / "interfaces" / "client"
TARGET = CLIENT / "blocking"
PACKAGE = "paddock.interfaces.client"
MODULES = (
    "agents",
    "approvals",
    "attempts",
    "command",
    "commands",
    "transfers",
    "files",
    "pty",
    "life",
    "disk",
    "quotas",
    "sight",
    "sandbox",
    "secrets",
    "spool",
    "task_orders",
    "task_course",
    "task",
    "volume",
)
WRAPPED = ("Command", "Commands", "Files", "Pty", "Sandbox", "Spool", "Volume")
_CLASS = re.compile(r"\bAsync([A-Z]\w+)")
_MANY = 12
Function = ast.FunctionDef | ast.AsyncFunctionDef


def generate(module: str) -> str:
    tree = ast.parse((CLIENT / f"{module}.py").read_text())
    classes = [node for node in tree.body if _is_asynchronous(node)]
    lines = [
        f'"""{ast.get_docstring(tree)}\n\nWritten by scripts/blocking.py; do not edit.\n"""',
        *_imports(tree, module, classes),
    ]
    for each in classes:
        assert isinstance(each, ast.ClassDef)
        lines.append(_class(each))
    return _formatted("\n".join(lines), TARGET / f"{module}.py")


def _is_asynchronous(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name.startswith("Async")


def _imports(tree: ast.Module, module: str, classes: list[ast.stmt]) -> Iterator[str]:
    """Those of the original, with blocking classes in place of asynchronous ones."""
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        text = ast.unparse(node)
        yield text.replace("AsyncIterator", "AsyncIterator, Iterable, Iterator")
        ours = [name.name for name in node.names if _is_ours(name.name)]
        if isinstance(node, ast.ImportFrom) and node.module and ours:
            source = node.module.removeprefix(f"{PACKAGE}.")
            yield f"from {PACKAGE}.blocking.{source} import {', '.join(map(_blocking, ours))}"
    yield f"from {PACKAGE}.portal import portal"
    own = [node.name for node in classes if isinstance(node, ast.ClassDef)]
    also = [name for name in _assigned(tree) if not name.startswith("_") or name == "_SHELL"]
    yield f"from {PACKAGE}.{module} import {', '.join([*own, *also])}"
    yield "from typing import Any, Self"


def _is_ours(name: str) -> bool:
    return bool(_CLASS.fullmatch(name)) and name not in ("AsyncIterator", "AsyncIterable")


def _assigned(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def _blocking(text: str) -> str:
    """A type as it is without an event loop."""
    text = text.replace("AsyncIterable[bytes]", "Iterable[bytes]")
    text = text.replace("AsyncIterator", "Iterator")
    return _CLASS.sub(r"\1", text)


def _class(node: ast.ClassDef) -> str:
    name = _blocking(node.name)
    bases = ", ".join(_blocking(ast.unparse(base)) for base in node.bases)
    lines = [f"\n\nclass {name}({bases}):" if bases else f"\n\nclass {name}:"]
    lines.append(f'    """{_blocking(ast.get_docstring(node, clean=False) or "")}"""')
    lines.append(f"\n    _inner: {node.name}")
    lines.append(f"\n    def __init__(self, inner: {node.name}) -> None:")
    lines += ["        super().__init__(inner)"] if bases else []
    lines.append("        self._inner = inner")
    for method in node.body:
        if isinstance(method, Function) and (text := _method(node.name, method)):
            lines.append(text)
    return "\n".join(lines)


_PROTOCOL = {
    "__aenter__": "def __enter__(self) -> Self:\n        return self",
    "__aexit__": "def __exit__(self, *_: object) -> None:\n"
    "        portal().run(self._inner.__aexit__(None, None, None))",
    "__aiter__": "def __iter__(self) -> Iterator[Output]:\n"
    "        return portal().each(aiter(self._inner))",
    "__repr__": "def __repr__(self) -> str:\n        return repr(self._inner)",
}


def _method(owner: str, node: Function) -> str:
    if node.name in _PROTOCOL:
        return f"\n    {_PROTOCOL[node.name]}"
    if node.name.startswith("_"):
        return ""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    head = [f"    @{each}" for each in decorators]
    arguments = _blocking(ast.unparse(node.args))
    answer = _blocking(ast.unparse(node.returns)) if node.returns else "None"
    head.append(f"    def {node.name}({arguments}) -> {answer}:")
    if "overload" in decorators:
        return "\n" + "\n".join(head) + " ..."
    if doc := ast.get_docstring(node, clean=False):
        head.append(f'        """{_blocking(doc)}"""')
    head.append(f"        {_body(owner, node, answer)}")
    return "\n" + "\n".join(head)


def _body(owner: str, node: Function, answer: str) -> str:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    inner = f"{owner}" if "classmethod" in decorators else "self._inner"
    target = f"{inner}.{node.name}"
    if "property" in decorators:
        return f"return {answer}({target})" if answer in WRAPPED else f"return {target}"
    called = f"{target}({_passed(node)})"
    if answer.startswith("Iterator["):
        return f"return portal().each({called})"
    ran = f"portal().run({called})"
    if answer == "Self":
        return f"return {'cls' if 'classmethod' in decorators else 'type(self)'}({ran})"
    if answer in WRAPPED:
        return f"return {answer}({ran})"
    if node.name == "run":
        return f"ran = {ran}\n        return Command(ran) if isinstance(ran, AsyncCommand) else ran"
    return ran if answer == "None" else f"return {ran}"


def _passed(node: Function) -> str:
    if len(node.args.kwonlyargs) > _MANY:
        owner = node.args.args[0].arg
        return f'**{{n: v for n, v in locals().items() if n != "{owner}"}}'
    plain = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
    named = [f"{each.arg}={_value(each)}" for each in node.args.kwonlyargs]
    more = [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    return ", ".join([*plain, *named, *more])


def _value(argument: ast.arg) -> str:
    is_listener = argument.annotation is not None and "Listener" in ast.unparse(argument.annotation)
    return f"portal().back({argument.arg})" if is_listener else argument.arg


def _formatted(text: str, path: Path) -> str:
    name = ["--stdin-filename", str(path)]
    for arguments in (
        ["check", "--fix", "--quiet", "--select", "F401,I", *name, "-"],
        ["format", *name, "-"],
    ):
        done = subprocess.run(
            [str(Path(sys.executable).parent / "ruff"), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        text = done.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is not up to date")
    check = parser.parse_args().check
    stale = []
    TARGET.mkdir(exist_ok=True)
    for module in MODULES:
        path, content = TARGET / f"{module}.py", generate(module)
        if not path.exists() or path.read_text() != content:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(content)
    if check and stale:
        print(f"not up to date: {', '.join(stale)}; run scripts/blocking.py")  # noqa: T201
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
