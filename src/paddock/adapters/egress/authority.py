"""The installation's own certificate authority: sandboxes trust it, and nobody else does.

It vouches for hosts that a secret is bound to, where the gateway has to look into TLS.
"""

import datetime
import os
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from paddock.domain.errors import Broken, InvalidRequest

FILE = "egress-authority.pem"
HOST_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
_VALID = datetime.timedelta(days=3650)
_BEGINS = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Authority:
    """Both in PEM."""

    certificate: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, place: Path) -> "Authority":
        """The one that is kept there, made on the first start."""
        file = place / FILE
        if not file.exists():
            _keep(file, _made())
        if (mode := stat.S_IMODE(file.stat().st_mode)) & 0o077:
            raise InvalidRequest(
                f"{file} can be read by others: its mode is {mode:o}",
                remediation="delete it and restart: sandboxes trust a new one when next started",
            )
        key, begins, certificate = file.read_text().partition(_BEGINS)
        if not begins or "PRIVATE KEY" not in key:
            raise Broken(
                f"{file} holds no authority", remediation="delete it, and a new one is made"
            )
        return cls(begins + certificate, key)


def authorities(more: str = "") -> str:
    """Those whom this host trusts, and those of one more file."""
    found = [Path(each).read_text() for each in HOST_STORES if Path(each).is_file()][:1]
    if more:
        try:
            found.append(Path(more).read_text())
        except OSError as error:
            raise InvalidRequest(
                f"egress.certificates cannot be read: {error}",
                remediation="name a file of certificates in PEM",
            ) from error
    return "\n".join(found)


def _made() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Paddock sandboxes")])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)


def _keep(file: Path, content: bytes) -> None:
    """Whole, for its owner alone, and never instead of one that another process was first with."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        try:
            os.link(name, file)
        except FileExistsError:
            return
    finally:
        Path(name).unlink(missing_ok=True)
