"""Certificates of a test's own CA, as PEM files."""

from __future__ import annotations

import datetime
from pathlib import Path

from kvorum.launch.cluster.dev_certificates import Authority as Signer
from kvorum.launch.cluster.dev_certificates import Wanted, issue, new_authority

_HOSTS = ("127.0.0.1", "localhost")


class Authority:
    """A CA, and the files of what it signs in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = new_authority(_NOW)
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._ca.certificate_pem)

    @property
    def signer(self) -> Signer:
        """The CA's certificate and key."""
        return self._ca

    def server(self, name: str, *, is_expired: bool = False) -> Path:
        """One PEM file with key and certificate of 127.0.0.1."""
        return self._written(
            name,
            Wanted(
                name="127.0.0.1",
                hosts=_HOSTS,
                begins=_LONG_PAST if is_expired else None,
                ends=_PAST if is_expired else None,
            ),
        )

    def node(
        self, common_name: str, name: str = "node.pem", *, hosts: tuple[str, ...] = _HOSTS
    ) -> Path:
        """A node certificate with this subject, for server and client, valid for `hosts`."""
        return self._written(
            name,
            Wanted(name=common_name, hosts=hosts, organization="Example", unit="nodes"),
        )

    def client(self, common_name: str, *, unit: str = "users") -> Path:
        wanted = Wanted(name=common_name, is_node=False, organization="Example", unit=unit)
        return self._written(f"client-{common_name}.pem", wanted)

    def _written(self, name: str, wanted: Wanted) -> Path:
        path = self.folder / name
        part = path.with_suffix(".part")
        part.write_bytes(issue(self._ca, wanted, _NOW))
        part.replace(path)
        return path


_NOW = datetime.datetime.now(datetime.UTC)
_PAST = _NOW - datetime.timedelta(days=1)
_LONG_PAST = _NOW - datetime.timedelta(days=30)
