"""A certificate authority for one test run, made on the fly."""

from __future__ import annotations

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates for names; ``file`` is what a client has to trust."""

    def __init__(self, folder):
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = named("The tests' own authority")
        self.certificate = self.signed(
            self.begun(self.name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(pem(self.certificate))

    def begun(self, subject, key):
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )

    def signed(self, builder):
        return builder.sign(self.key, hashes.SHA256())

    def certificate_for(self, host):
        """The path of a file with a certificate for a name and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = self.begun(named(host), key).add_extension(alternative, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path = self.folder / f"{host}.pem"
        path.write_bytes(private + pem(self.signed(builder)))
        return path


def named(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
