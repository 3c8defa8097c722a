"""Changes of files for agents without a tool that writes them: as patches, and as shell."""

import posixpath
import shlex


def adding(path: str, content: str) -> str:
    """The patch that Codex knows. It ends the file with a newline in any case."""
    return _patch(f"*** Add File: {path}\n{_marked('+', content)}")


def replacing(path: str, old: str, new: str) -> str:
    return _patch(f"*** Update File: {path}\n@@\n{_marked('-', old)}{_marked('+', new)}")


def writing(path: str, content: str) -> str:
    """A line of shell that writes the file."""
    directory = posixpath.dirname(path)
    first = f"mkdir -p {shlex.quote(directory)} && " if directory else ""
    return f"{first}printf %s {shlex.quote(content)} > {shlex.quote(path)}"


def substituting(path: str, old: str, new: str) -> str:
    """A line of shell that edits the file, with what every Debian has."""
    change = r"s/\Q$ENV{OLD}\E/$ENV{NEW}/ or die qq(not found\n)"
    variables = f"OLD={shlex.quote(old)} NEW={shlex.quote(new)}"
    return f"{variables} perl -0777 -i -pe {shlex.quote(change)} {shlex.quote(path)}"


def _patch(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch\n"


def _marked(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.removesuffix("\n").split("\n"))
