"""Certificates of a test's own CA, as PEM files."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme


class Authority:
    """A CA, and the files of what it signs in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(self, name: str, *, is_expired: bool = False) -> Path:
        """One PEM file with key and certificate of 127.0.0.1."""
        made = self._ca.issue_cert(
            "127.0.0.1",
            "localhost",
            not_after=_PAST if is_expired else None,
            not_before=_LONG_PAST if is_expired else None,
        )
        return self._written(name, made)

    def node(self, common_name: str, name: str = "node.pem") -> Path:
        """Of a node on this machine, a server and a client, with a subject."""
        made = self._ca.issue_cert(
            "127.0.0.1",
            "localhost",
            common_name=common_name,
            organization_name="Example",
            organization_unit_name="nodes",
        )
        return self._written(name, made)

    def client(self, common_name: str, *, unit: str = "users") -> Path:
        made = self._ca.issue_cert(
            f"{common_name.lower()}@example.org",
            common_name=common_name,
            organization_name="Example",
            organization_unit_name=unit,
        )
        return self._written(f"client-{common_name}.pem", made)

    def _written(self, name: str, made: trustme.LeafCert) -> Path:
        path = self.folder / name
        part = path.with_suffix(".part")
        part.write_bytes(made.private_key_and_cert_chain_pem.bytes())
        part.replace(path)
        return path


_NOW = datetime.datetime.now(datetime.UTC)
_PAST = _NOW - datetime.timedelta(days=1)
_LONG_PAST = _NOW - datetime.timedelta(days=30)
