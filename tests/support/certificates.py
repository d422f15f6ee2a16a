"""Certificates for tests: a private authority, and server certificates that it signs."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)
NAMES = [
    x509.DNSName("upstream.test"),
    x509.DNSName("localhost"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
]


class Authority:
    """A private certificate authority; `ca_file` is the file that clients must trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.ca_file = folder / f"{name}.pem"
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._signed(self._name, self._key.public_key(), constraints)
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server_context(self, ends_in: datetime.timedelta = DAY) -> ssl.SSLContext:
        """Return the TLS context of a server at NAMES. Its certificate may have expired already."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upstream.test")])
        names = x509.SubjectAlternativeName(NAMES)
        path = self.ca_file.with_suffix(".server.pem")
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + self._signed(subject, key.public_key(), names, ends_in).public_bytes(
                serialization.Encoding.PEM
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        extension: x509.ExtensionType,
        ends_in: datetime.timedelta = DAY,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + ends_in)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )
