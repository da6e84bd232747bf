"""The files of `kvorum certs dev`: ca.pem, ca.key, and NAME.pem for each node and user.

A second call adds what is missing, signed by the same CA. It overwrites nothing unless it is told
to, and then the named files alone: a new CA would make every other file of the folder worthless.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.launch.dev_certificates import (
    OWN_HOSTS,
    Authority,
    Wanted,
    described,
    is_signed_by,
    issue,
    load_authority,
    new_authority,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.private_files import private_files

CA_FILE, CA_KEY_FILE = "ca.pem", "ca.key"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A file of the folder. state: made, or kept. ends: when its certificate expires. warning: why
    a file that was kept cannot be used as it is."""

    name: str
    kind: str
    file: str
    state: str
    ends: datetime.datetime
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The certificates to make. nodes, users: names. hosts: in every node's certificate, beside
    OWN_HOSTS. days: until they expire. is_forced: replace the files of these names."""

    nodes: Sequence[str]
    users: Sequence[str] = ()
    hosts: Sequence[str] = ()
    days: int = 30
    is_forced: bool = False


def make_certificates(folder: str, request: Request, now: datetime.datetime) -> list[Made]:
    """Make what is missing; the CA's own line is the first. Raises ConfigError before a file is
    written, OSError."""
    names = [*request.nodes, *request.users]
    for name in names:
        if not _NAME.fullmatch(name) or f"{name}.pem" == CA_FILE:
            raise ConfigError(
                f"{name!r} cannot be a node or user here: its file is NAME.pem, so a name has "
                f"letters, digits and ._@-, and is not {CA_FILE.removesuffix('.pem')}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"{name} is given twice; a file is of one node or one user")
    authority, is_new = _authority(folder, request, now)
    ends = now + datetime.timedelta(days=request.days)
    todo: list[tuple[str, bytes]] = []
    made = [_ca(folder, authority, is_new=is_new)]
    if is_new:
        todo += [(CA_KEY_FILE, authority.key_pem), (CA_FILE, authority.certificate_pem)]
    for name in names:
        is_node = name in request.nodes
        hosts = (*OWN_HOSTS, *request.hosts) if is_node else ()
        kind, path = "node" if is_node else "user", os.path.join(folder, f"{name}.pem")
        if os.path.exists(path) and not request.is_forced:
            made.append(_kept(name, kind, path, authority, hosts=hosts, now=now))
            continue
        wanted = Wanted(name=name, hosts=hosts, is_node=is_node, ends=ends)
        todo.append((f"{name}.pem", issue(authority, wanted, now)))
        made.append(
            Made(name=name, kind=kind, file=path, state="made", ends=min(ends, authority.ends))
        )
    with private_files():
        os.makedirs(folder, exist_ok=True)
        for file, text in todo:
            _write(os.path.join(folder, file), text)
    return made


def _authority(folder: str, request: Request, now: datetime.datetime) -> tuple[Authority, bool]:
    """The CA of the folder, and whether it is a new one."""
    paths = [os.path.join(folder, name) for name in (CA_FILE, CA_KEY_FILE)]
    there = [os.path.exists(path) for path in paths]
    if not any(there):
        return new_authority(now), True
    if not all(there):
        missing = paths[there.index(False)]
        raise ConfigError(
            f"{missing} is missing: put it back, or choose another folder; a new CA would make the "
            f"certificates in {folder} worthless"
        )
    certificate, key = (_read(path) for path in paths)
    authority = load_authority(certificate, key, " and ".join(paths))
    if authority.ends <= now:
        raise ConfigError(
            f"{paths[0]} was valid until {authority.ends:%Y-%m-%d}: choose another folder, and "
            "give every node and user its new file"
        )
    return authority, False


def _ca(folder: str, authority: Authority, *, is_new: bool) -> Made:
    return Made(
        name="ca",
        kind="CA",
        file=os.path.join(folder, CA_FILE),
        state="made" if is_new else "kept",
        ends=authority.ends,
    )


def _kept(
    name: str,
    kind: str,
    path: str,
    authority: Authority,
    *,
    hosts: Sequence[str],
    now: datetime.datetime,
) -> Made:
    pem = _read(path)
    try:
        ends, known = described(pem)
        is_own = is_signed_by(pem, authority)
    except ValueError as error:
        raise ConfigError(
            f"{path} holds no certificate: {error}; move it away, or make it anew with --force"
        ) from error
    missing = [host for host in hosts if host not in known]
    reason = ""
    if not is_own:
        reason = "another CA signed it"
    elif ends <= now:
        reason = f"it was valid until {ends:%Y-%m-%d}"
    elif missing:
        reason = f"it does not name {', '.join(missing)}"
    warning = f"{path} is kept, but {reason}; make it anew with --force" if reason else ""
    return Made(name=name, kind=kind, file=path, state="kept", ends=ends, warning=warning)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, text: bytes) -> None:
    """Write a file atomically, because a broker may read it at any time."""
    part = f"{path}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    with open(part, "xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
