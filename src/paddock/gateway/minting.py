"""Certificates for the hosts that secrets are bound to, signed by the installation's authority.

They are trusted inside sandboxes and nowhere else.
"""

import datetime
import os
import ssl
from collections import OrderedDict

# Loaded by the first signature otherwise, when the files may be out of the gateway's reach: it runs
# as a user of its own, and Paddock may be installed below /root.
import cryptography.hazmat.backends.openssl.backend  # noqa: F401
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=7)
_RENEWED = datetime.timedelta(days=1)
_SKEW = datetime.timedelta(hours=1)
_MOST = 512
_LONGEST_COMMON_NAME = 64


class Mint:
    """One key for all of its certificates: they never leave this process."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self._authority = x509.load_pem_x509_certificate(certificate)
        signing = serialization.load_pem_private_key(key, password=None)
        if not isinstance(signing, ec.EllipticCurvePrivateKey):
            raise TypeError("the authority's key is not of an elliptic curve")
        self._signing = signing
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._made: OrderedDict[str, tuple[datetime.datetime, ssl.SSLContext]] = OrderedDict()

    def context(self, name: str) -> ssl.SSLContext:
        """To be that host to a client."""
        now = datetime.datetime.now(datetime.UTC)
        found = self._made.get(name)
        if found is None or found[0] < now:
            found = (now + _VALID - _RENEWED, self._context(name, now))
            self._made[name] = found
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        self._made.move_to_end(name)
        return found[1]

    def _context(self, name: str, now: datetime.datetime) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        private = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        # The module takes files only; this one is in memory, and of this process.
        handle = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(handle, private + self._certificate(name, now))
            context.load_cert_chain(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)
        return context

    def _certificate(self, name: str, now: datetime.datetime) -> bytes:
        common = x509.NameAttribute(NameOID.COMMON_NAME, name[:_LONGEST_COMMON_NAME])
        authority_key = self._signing.public_key()
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([common]))
            .issuer_name(self._authority.subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._signing, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)
