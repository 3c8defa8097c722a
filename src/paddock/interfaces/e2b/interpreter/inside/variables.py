"""Environment variables of one cell, as code that a kernel runs before and after it."""

from __future__ import annotations

import json
import shlex


def set_code(language: str, env: dict[str, str]) -> str:
    """Variables for one cell; what they were before is kept beside them."""
    if language == "python":
        return (
            f"import os as _os; _paddock_was = {{n: _os.environ.get(n) for n in {list(env)!r}}}; "
            f"_os.environ.update({env!r})"
        )
    if language == "bash":
        return "\n".join(
            f'unset _paddock_{name}; [ -z "${{{name}+x}}" ] || _paddock_{name}=${name}; '
            f"export {name}={shlex.quote(value)}"
            for name, value in env.items()
        )
    return (
        f"globalThis._paddock_was = Object.fromEntries({json.dumps(list(env))}"
        ".map((name) => [name, process.env[name]]));"
        f"Object.assign(process.env, {json.dumps(env)}); undefined"
    )


def unset_code(language: str, env: dict[str, str]) -> str:
    """Restore the variables. Does nothing in a restarted kernel, which has none."""
    if language == "python":
        return (
            "import os as _os\n"
            "for _name, _value in globals().pop('_paddock_was', {}).items():\n"
            "    _os.environ.pop(_name, None)\n"
            "    if _value is not None: _os.environ[_name] = _value\n"
        )
    if language == "bash":
        return "\n".join(
            f'if [ -z "${{_paddock_{name}+x}}" ]; then unset {name}; '
            f"else export {name}=$_paddock_{name}; unset _paddock_{name}; fi"
            for name in env
        )
    return (
        "for (const [name, value] of Object.entries(globalThis._paddock_was ?? {})) "
        "{ delete process.env[name]; if (value !== undefined) process.env[name] = value }"
        " delete globalThis._paddock_was; undefined"
    )
