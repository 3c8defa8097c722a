"""What a root file system must have for a sandbox, added where it is missing and safe to add."""

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

USER, UID = "user", 1000
_DIRECTORIES = (
    ("proc", 0o555),
    ("sys", 0o555),
    ("dev", 0o755),
    ("run", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("etc", 0o755),
    ("root", 0o700),
    ("home", 0o755),
)
_LARGEST_TEXT = 1 << 20


class Root:
    """A root file system that somebody else made, changed without following its links.

    Its `/etc` may be a link to `/etc`, which means the host's when the host follows it. Who is not
    root keeps what is made: whoever packs it up has to say whose it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._give = os.fchown if os.geteuid() == 0 else _keep

    def has(self, path: str) -> bool:
        return self._mode(path) is not None

    def has_directory(self, path: str) -> bool:
        mode = self._mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def read(self, path: str) -> str | None:
        """None when it is no regular file reached without links."""
        with suppress(OSError), self._parent(path) as (parent, name):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return file.read(_LARGEST_TEXT).decode(errors="surrogateescape")
        return None

    def write(self, path: str, text: str, mode: int = 0o644, owner: int = 0) -> bool:
        """A new file in the place of what stood there; whether it could be."""
        with suppress(OSError), self._parent(path) as (parent, name):
            draft = f".paddock-{os.urandom(4).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(draft, flags, mode, dir_fd=parent), "wb") as file:
                self._give(file.fileno(), owner, owner)
                os.fchmod(file.fileno(), mode)
                file.write(text.encode(errors="surrogateescape"))
            os.rename(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
            return True
        return False

    def append(self, path: str, line: str, mode: int = 0o644) -> bool:
        text = self.read(path) or ""
        if (found := self._mode(path)) is not None:
            mode = stat.S_IMODE(found)
        return self.write(path, text + ("\n" if text and text[-1] != "\n" else "") + line, mode)

    def mkdir(self, path: str, mode: int = 0o755, owner: int = 0) -> bool:
        """Whether it was made; what stands there already is left as it is."""
        with suppress(OSError), self._parent(path) as (parent, name):
            os.mkdir(name, mode, dir_fd=parent)
            made = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=parent)
            try:
                self._give(made, owner, owner)
                os.fchmod(made, mode)
            finally:
                os.close(made)
            return True
        return False

    def link(self, path: str, target: str) -> None:
        with self._parent(path) as (parent, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            os.symlink(target, name, dir_fd=parent)

    def names(self, path: str) -> list[str]:
        with suppress(OSError), self._parent(f"{path}/.") as (parent, _):
            return sorted(os.listdir(parent))  # noqa: PTH208 - of a descriptor
        return []

    def _mode(self, path: str) -> int | None:
        with suppress(OSError), self._parent(path) as (parent, name):
            return os.lstat(name, dir_fd=parent).st_mode
        return None

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        *above, name = path.split("/")
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        here = os.open(self._path, flags)
        try:
            for part in above:
                below = os.open(part, flags, dir_fd=here)
                os.close(here)
                here = below
            yield here, name
        finally:
            os.close(here)


def _keep(_descriptor: int, _user: int, _group: int) -> None:
    return None


def fulfil(path: Path) -> None:
    """The directories that are mounted over, and the user `user` with a home and, if any, sudo."""
    root = Root(path)
    for name, mode in _DIRECTORIES:
        root.mkdir(name, mode)
    _add_user(root)
    _add_home(root)
    if (root.has("usr/bin/sudo") or root.has("bin/sudo")) and root.has_directory("etc/sudoers.d"):
        # By number: where uid 1000 has another name as well, sudo goes by that one.
        root.write("etc/sudoers.d/paddock", f"#{UID} ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
    remove_devices(path)


def _add_user(root: Root) -> None:
    passwd = root.read("etc/passwd")
    if passwd is None:
        if root.has("etc/passwd"):
            return
        passwd = f"root:x:0:0:root:/root:{_shell(root)}\n"
        root.write("etc/passwd", passwd)
    if not root.has("etc/group"):
        root.write("etc/group", "root:x:0:\n")
    if _named(passwd, USER):
        return
    root.append("etc/passwd", f"{USER}:x:{UID}:{UID}::/home/{USER}:{_shell(root)}\n")
    group = root.read("etc/group")
    if group is not None and not _named(group, USER) and not _numbered(group, UID):
        root.append("etc/group", f"{USER}:x:{UID}:\n")
    shadow = root.read("etc/shadow")
    if shadow is not None and not _named(shadow, USER):
        root.append("etc/shadow", f"{USER}:*:19000:0:99999:7:::\n")


def _add_home(root: Root) -> None:
    if not root.mkdir(f"home/{USER}", 0o755, UID):
        return
    for place in (".local", ".local/bin"):  # a login shell has it on its path if it is there
        root.mkdir(f"home/{USER}/{place}", 0o755, UID)
    for name in root.names("etc/skel"):
        text = root.read(f"etc/skel/{name}")
        if text is not None:
            root.write(f"home/{USER}/{name}", text, 0o644, UID)


def _shell(root: Root) -> str:
    has_bash = any(root.has(path) for path in ("bin/bash", "usr/bin/bash"))
    return "/bin/bash" if has_bash else "/bin/sh"


def _named(table: str, name: str) -> bool:
    return any(line.startswith(f"{name}:") for line in table.splitlines())


def _numbered(table: str, number: int) -> bool:
    return any(line.split(":")[2:3] == [str(number)] for line in table.splitlines())


def remove_devices(path: Path) -> None:
    """Device nodes that came along; 0:0 is no device but an overlay's mark for a removed file."""
    command = ["find", str(path), "(", "-type", "b", "-o", "-type", "c", ")", "-print0"]
    found = subprocess.run(command, capture_output=True, check=False).stdout
    for name in filter(None, found.split(b"\0")):
        node = Path(os.fsdecode(name))
        if node.lstat().st_rdev:
            node.unlink()
