"""Where an engine listens."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from paddock.domain.errors import InvalidRequest

DEFAULT = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A unix socket on this host, or a URL elsewhere."""

    text: str
    """As the operator wrote it, for messages."""
    socket: str = ""
    url: str = ""
    certificates: str = ""
    """The directory with ca.pem, cert.pem and key.pem, where the engine asks for them."""

    @classmethod
    def find(cls, wish: str, environ: Mapping[str, str] = os.environ) -> "EngineAddress":
        """What was asked for, else DOCKER_HOST, else the first usual socket that exists."""
        text = wish or environ.get("DOCKER_HOST", "")
        if text:
            return cls.parse(text, environ)
        run = environ.get("XDG_RUNTIME_DIR", "")
        usual = [DEFAULT, "/run/podman/podman.sock"]
        if run:
            usual += [f"{run}/docker.sock", f"{run}/podman/podman.sock"]
        path = next((path for path in usual if Path(path).is_socket()), DEFAULT)
        return cls.parse(f"unix://{path}", environ)

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str] = os.environ) -> "EngineAddress":
        parts = urlsplit(text)
        if parts.scheme == "unix" and parts.path.startswith("/") and not parts.netloc:
            return cls(text, socket=parts.path)
        if parts.scheme not in ("tcp", "http", "https") or not parts.hostname:
            raise InvalidRequest(
                f"the Docker host {text!r} is neither a unix socket nor a TCP address",
                remediation=(
                    "set docker.host or DOCKER_HOST to unix:///PATH or tcp://HOST:PORT; reach an "
                    "engine behind ssh with `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock "
                    "HOST` and unix:///tmp/engine.sock"
                ),
            )
        tls = parts.scheme == "https" or bool(environ.get("DOCKER_TLS_VERIFY"))
        default = str(Path.home() / ".docker")
        return cls(
            text,
            url=f"{'https' if tls else 'http'}://{parts.hostname}:{parts.port or 2375 + tls}",
            certificates=environ.get("DOCKER_CERT_PATH", default) if tls else "",
        )

    def tls(self) -> ssl.SSLContext | None:
        if not self.certificates:
            return None
        directory = Path(self.certificates)
        try:
            context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
            context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
        except OSError as error:
            raise InvalidRequest(
                f"the certificates for {self.text} in {directory} cannot be used: {error}",
                remediation="put ca.pem, cert.pem and key.pem there, or set DOCKER_CERT_PATH",
            ) from error
        return context
