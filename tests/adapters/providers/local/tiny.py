"""A root file system of one program: enough for a shell, made in a moment."""

import os
import shutil
import subprocess
from pathlib import Path

BUSYBOX = "/bin/busybox"


def build(root: Path) -> Path:
    """A directory with busybox under all its names, and the users that a sandbox has."""
    for name in ("bin", "etc", "home/user", "root", "tmp", "usr/bin", "var"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    for applet in applets.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    os.chown(root / "home/user", 1000, 1000)
    (root / "tmp").chmod(0o1777)
    return root
