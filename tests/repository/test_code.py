"""Rules about the code that no linter has."""

import ast
import sys

import pytest

from tests.repository.checkout import parsed, python_files, relative, tracked_files

# Split, because this file is looked at as well.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("gcr", "io"),
        ("registry-1", "docker", "io"),
        ("index", "docker", "io"),
    )
]


NAMING_REGISTRIES = ("uv.lock", "development.rules")
"""The second is data: which of them a sandbox may reach."""


def imports(path) -> set[str]:
    """The full names a module imports, also inside functions."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_module_says_what_it_is_for():
    silent = [
        relative(path)
        for path in python_files("src", "scripts", "bench", "tests")
        if (text := path.read_text().strip())
        and not text.startswith('"""')
        and not ast.get_docstring(parsed(path))
    ]
    assert not silent, "a module begins with one sentence: what it is for"


def test_the_domain_imports_only_the_standard_library():
    foreign = {
        f"{relative(path)}: {name}"
        for path in python_files("src/paddock/domain")
        for name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith("paddock.domain")
    }
    assert not foreign


def test_no_test_uses_mocks():
    mocked = [
        relative(path)
        for path in python_files("tests", "src/paddock/testing")
        if "mock" in path.read_text()
        and (
            any(name.split(".")[0] in ("mock", "pytest_mock") for name in imports(path))
            or any(name.startswith("unittest.mock") for name in imports(path))
        )
    ]
    assert not mocked, "write a fake that implements the port and passes its suite"


@pytest.mark.parametrize("host", REGISTRIES)
def test_no_file_names_a_package_registry(host):
    naming = [
        relative(path)
        for path in tracked_files()
        if path.name not in NAMING_REGISTRIES and host.encode() in path.read_bytes()
    ]
    assert not naming, "which registry is used is the machine's business"
