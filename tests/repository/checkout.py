"""The files of this checkout, as the tests about it see them."""

import ast
import gc
import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """What is in git or would be added to it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    paths = {ROOT / name for name in done.stdout.split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*directories: str) -> list[Path]:
    return sorted(path for name in directories for path in (ROOT / name).rglob("*.py"))


def markdown_files() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    gc.disable()  # collections find nothing and take most of the time
    try:
        return ast.parse(path.read_text(), filename=str(path))
    finally:
        gc.enable()


def without_code(markdown: str) -> str:
    """The prose, without fenced blocks and without code in the line."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S))
