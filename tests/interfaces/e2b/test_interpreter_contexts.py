"""Contexts of the code interpreter: the default ones, their directories and their languages."""

import re

import pytest
from e2b import SandboxException

from tests.interfaces.e2b.conftest import Live
from tests.interfaces.e2b.patient import Patient

pytestmark = [pytest.mark.timeout(900)]
# The first run on a machine builds the template.


@pytest.fixture(scope="module")
def fresh(live: Live, interpreter: None):
    """A sandbox, and what listened in it when its client had it."""
    made = Patient.create(timeout=300, **live.options)
    listening = made.commands.run("ss -Hltnp").stdout
    yield made, listening
    made.kill()


@pytest.fixture(scope="module")
def box(fresh):
    return fresh[0]


@pytest.fixture(scope="module")
def javascript(box):
    """A kernel that the tests of JavaScript share. Modules are beside it."""
    box.files.write("/home/user/parts/numbers.mjs", "export default 7; export const a = 1, b = 2")
    return box.create_code_context(cwd="/home/user/parts", language="javascript")


def test_a_sandbox_is_handed_over_when_its_kernel_is_ready(fresh):
    box, listening = fresh
    kernel = box.commands.run("pgrep -f 'paddock-interpreter.zip python'").stdout.strip()
    sockets = [line for line in listening.splitlines() if f"pid={kernel}," in line]
    assert len(sockets) >= 5, "a kernel that is ready listens on five ports"


def test_neither_the_server_nor_a_kernel_loads_what_it_does_not_need(box):
    """Both would take twice the memory, and a sandbox half a second more to start."""
    loaded = box.commands.run(
        "PYTHONPATH=/usr/local/lib/paddock-interpreter.zip python3 -c "
        '\'import sys, inside.server; print({"ipykernel", "IPython"} & set(sys.modules))\''
    )
    assert loaded.stdout == "set()\n"
    assert box.run_code("import sys; {'debugpy', 'jedi'} & set(sys.modules)").text == "set()"
    assert box.run_code("import jedi; jedi.__name__").text == "jedi"


def test_python_and_javascript_have_default_contexts_and_one_without_a_kernel_is_removed(box):
    first, second, *_ = box.list_code_contexts()
    assert (first.language, second.language) == ("python", "javascript")
    assert (first.cwd, second.cwd) == ("/home/user", "/home/user")
    box.remove_code_context(second)
    assert "javascript" not in {each.language for each in box.list_code_contexts()}
    assert box.run_code("1 + 1").text == "2"


BAD_DIRECTORIES = {
    "/home/user/missing": "Directory /home/user/missing does not exist",
    "/etc/passwd": "Directory /etc/passwd does not exist",
    "/root": "Directory /root cannot be entered by user user",
    "/root/deeper": "Directory /root/deeper cannot be used: Permission denied",
    "two\nlines": "does not exist",
    "x" * 5000: "cannot be used: File name too long",
}


@pytest.mark.parametrize("cwd", BAD_DIRECTORIES, ids=lambda cwd: repr(cwd[:20]))
def test_a_directory_that_cannot_be_used_is_named_and_leaves_no_context(box, cwd):
    before = box.list_code_contexts()
    with pytest.raises(SandboxException, match=f"^400.*{re.escape(BAD_DIRECTORIES[cwd])}"):
        box.create_code_context(cwd=cwd)
    assert box.list_code_contexts() == before


@pytest.mark.slow
def test_a_context_whose_directory_is_gone_recovers_when_it_is_back(box):
    box.files.make_dir("/home/user/moved")
    context = box.create_code_context(cwd="/home/user/moved")
    box.commands.run("rmdir /home/user/moved")
    with pytest.raises(SandboxException, match="Directory /home/user/moved does not exist"):
        box.restart_code_context(context)
    assert (
        "could not be started again"
        in box.run_code("import os; os._exit(1)", context=context).error.value
    )
    with pytest.raises(SandboxException, match="Directory /home/user/moved does not exist"):
        box.run_code("1", context=context)
    box.files.make_dir("/home/user/moved")
    assert box.run_code("1 + 1", context=context).text == "2"
    box.remove_code_context(context)


@pytest.mark.parametrize("language", ["r", "java"])
def test_a_language_without_a_kernel_is_refused_with_those_that_have_one(box, language):
    expected = f"^400.*no kernel for {language}. Use python, javascript, typescript, bash"
    with pytest.raises(SandboxException, match=expected):
        box.run_code("1", language=language)
    with pytest.raises(SandboxException, match=expected):
        box.create_code_context(language=language)


IMPORTS = {
    "import fs from 'fs'\nfs.existsSync('/')": "true",
    "import seven, { a as one, b } from './numbers.mjs'; seven + one + b": "10",
    "import * as numbers from './numbers.mjs'\nnumbers.b": "2",
    "import {\n  a, // first\n  b as two\n} from './numbers.mjs'\nawait (a + two)": "3",
    "const early = later\nimport { b as later } from './numbers.mjs'\nearly": "2",
    "`\nimport x from 'y'\n`.length; import { a } from './numbers.mjs'; a": "1",
}


@pytest.mark.slow
def test_javascript_imports_modules(box, javascript):
    for code, text in IMPORTS.items():
        done = box.run_code(code, context=javascript)
        assert (done.error, done.text) == (None, text), code
    again = next(iter(IMPORTS))
    assert box.run_code(again, context=javascript).text == "true"
    failed = box.run_code("import nothing from 'not-installed'", context=javascript)
    assert "Cannot find package 'not-installed'" in failed.error.value
    assert box.run_code("const util = 1, open = 2; util + open", context=javascript).text == "3"


@pytest.mark.slow
def test_a_loop_after_an_import_can_be_interrupted_and_loses_nothing(box, javascript):
    box.run_code("let kept = 5", context=javascript)
    with pytest.raises(Exception, match="timed out"):
        loop = "import { a } from './numbers.mjs'\nwhile (true) {}"
        box.run_code(loop, context=javascript, timeout=2)
    assert box.run_code("kept", context=javascript).text == "5"


TYPED = {
    "function less(x: number, y: number): number {\n  return x - y\n}\nless(1, 2)": "-1",
    "interface Point { x: number }\nconst point: Point = { x: 1 }\npoint.x as any": "1",
    "point.x + (await Promise.resolve<number>(1))": "2",
    "enum Size { Small, Large = 5 }\nSize.Large": "5",
    "import type { Stats } from 'fs'\nimport { sep } from 'path'\nsep": "/",
}


@pytest.mark.slow
def test_typescript(box):
    for code, text in TYPED.items():
        done = box.run_code(code, language="ts")
        assert (done.error, done.logs.stderr, done.text) == (None, [], text), code
    assert box.run_code("let x: = 1", language="typescript").error.name == "SyntaxError"
    shown = box.run_code("process.env.V", language="typescript", envs={"V": "set"})
    assert shown.text == "set"
    assert "typescript" in {each.language for each in box.list_code_contexts()}
