"""Whom programs in a container trust: those its image trusts, those this host trusts, and us.

They are told by a file in the container's /run and by variables that name it. /run is memory: the
file is new at every start, leaves the image's own store alone, and becomes part of no snapshot.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from paddock.adapters.egress.authority import HOST_STORES, authorities
from paddock.adapters.providers.host import rooted
from paddock.adapters.providers.host.processes import Process

CERTIFICATES = "/run/paddock/certificates.pem"
TRUST_ENV: Mapping[str, str] = dict.fromkeys(
    (
        "SSL_CERT_FILE",  # OpenSSL, and with it Python and Ruby; Go, Rust, uv
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "DENO_CERT",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
    ),
    CERTIFICATES,
)
"""Programs read the image's own store unless one of these is set; there is no other way to tell
them that leaves the image as it is."""

_STORES = (*HOST_STORES, "/etc/ssl/cert.pem")
_LARGEST = 4 << 20
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_log = logging.getLogger(__name__)


def establish(init: Process, authority: str) -> Mapping[str, str]:
    """Put the file into a container in which nothing runs yet; the variables that name it.

    None of them where it cannot be put: what they name would be missed by every program.
    """
    try:
        with _root_of(init) as root:
            _write(root, together(_own(root), authorities(), authority))
    except OSError as error:
        _log.warning("certificates not put into a container", extra={"error": str(error)})
        return {}
    return TRUST_ENV


def together(*stores: str) -> str:
    """Each certificate once, and nothing but certificates."""
    found = dict.fromkeys(each for store in stores for each in _CERTIFICATE.findall(store))
    return "".join(f"{each}\n" for each in found)


@contextmanager
def _root_of(init: Process) -> Iterator[int]:
    with rooted.opened_root(Path(f"/proc/{init.pid}/root")) as root:
        if not init.alive():  # its number may be another's by now
            raise ProcessLookupError(f"process {init.pid} has ended")
        yield root


def _own(root: int) -> str:
    """The store of the image, which is a stranger's: nothing is opened that is no plain file."""
    for path in _STORES:
        with suppress(OSError), rooted.opened(root, path, os.O_PATH) as found:
            seen = os.fstat(found)
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= _LARGEST:
                return Path(rooted.itself(found)).read_text("ascii", "replace")
    return ""


def _write(root: int, certificates: str) -> None:
    place, name = CERTIFICATES.removeprefix("/run/").split("/")
    with _below(root, "run") as run:
        os.mkdir(place, dir_fd=run)
        with _below(run, place) as directory:
            os.fchmod(directory, 0o755)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=directory), "w") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(certificates)


@contextmanager
def _below(directory: int, name: str) -> Iterator[int]:
    """A mount may be there, and no link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    found = os.open(name, flags, dir_fd=directory)
    try:
        yield found
    finally:
        os.close(found)
