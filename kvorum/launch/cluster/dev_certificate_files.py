"""The files of `kvorum certs dev`: ca.pem, ca.key, and NAME.pem for each node and user.

A second call adds what is missing, signed by the same CA. It overwrites nothing unless it is told
to, and then the named files alone: a new CA would make every other file of the folder worthless.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvorum.launch.cluster.dev_certificates import (
    OWN_HOSTS,
    Authority,
    Wanted,
    described,
    is_signed_by,
    issue,
    load_authority,
    load_certificates,
    new_authority,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.private_files import private_files

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CA_FILE, CA_KEY_FILE = "ca.pem", "ca.key"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A file of the folder.

    state: made, or kept.
    ends: when its certificate expires.
    is_own: False for one of another CA.
    warning: why a file that was kept cannot be used as it is.
    """

    name: str
    kind: str
    file: str
    state: str
    ends: datetime.datetime
    is_own: bool = True
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """The certificates to make.

    nodes, users: names.
    hosts: in every node's certificate, beside OWN_HOSTS.
    days: until they expire.
    is_forced: replace the files of these names.
    may_begin: make a CA in a folder without CA and certificates.
    """

    nodes: Sequence[str]
    users: Sequence[str] = ()
    hosts: Sequence[str] = ()
    days: int = 365
    is_forced: bool = False
    may_begin: bool = True


def make_certificates(
    folder: str, request: CertificateRequest, now: datetime.datetime
) -> list[Made]:
    """Make what is missing; the CA's own line is the first. The CA's key is read only if there is
    something to sign. Raises ConfigError before a file is written, OSError."""
    names = [*request.nodes, *request.users]
    _check_names(names)
    paths = {name: os.path.join(folder, f"{name}.pem") for name in names}
    missing = [
        f"{name}.pem" for name in names if request.is_forced or not os.path.exists(paths[name])
    ]
    authority, trusted, signer, is_new = _authority(
        folder, missing, now, may_begin=request.may_begin
    )
    ends = now + datetime.timedelta(days=request.days)
    todo: list[tuple[str, bytes]] = []
    made = [_ca(folder, authority, is_new=is_new)]
    if is_new and signer is not None:
        todo += [(CA_KEY_FILE, signer.key_pem), (CA_FILE, signer.certificate_pem)]
    for name, path in paths.items():
        is_node = name in request.nodes
        hosts = (*OWN_HOSTS, *request.hosts) if is_node else ()
        kind = "node" if is_node else "user"
        if f"{name}.pem" not in missing or signer is None:
            again = renewal(
                folder, [(kind, name)], hosts=request.hosts if is_node else (), days=request.days
            )
            made.append(_kept(name, kind, path, trusted, hosts=hosts, now=now, again=again))
            continue
        wanted = Wanted(name=name, hosts=hosts, is_node=is_node, ends=ends)
        todo.append((f"{name}.pem", issue(signer, wanted, now)))
        made.append(
            Made(name=name, kind=kind, file=path, state="made", ends=min(ends, signer.ends))
        )
    with private_files():
        os.makedirs(folder, exist_ok=True)
        for file, text in todo:
            _write(os.path.join(folder, file), text)
    return made


def renewal(
    folder: str, names: Sequence[tuple[str, str]], *, hosts: Sequence[str], days: int
) -> str:
    """The command that makes these certificates anew.

    names: of each the kind, node or user, and the name.
    hosts, days: as in Request.
    """
    given = [part for kind, name in names for part in (f"--{kind}", name)]
    given += [part for host in dict.fromkeys(hosts) for part in ("--host", host)]
    return shlex.join(["kvorum", "certs", "dev", folder, "--force", "--days", str(days), *given])


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or f"{name}.pem" == CA_FILE:
            raise ConfigError(
                f"{name!r} cannot be a node or user here: its file is NAME.pem, so a name has "
                f"letters, digits and ._@-, and is not {CA_FILE.removesuffix('.pem')}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"{name} is given twice; a file is of one node or one user")


def _authority(
    folder: str, missing: Sequence[str], now: datetime.datetime, *, may_begin: bool
) -> tuple[Certificate, list[Certificate], Authority | None, bool]:
    """The CA of the folder: its certificate; all certificates of its file, which may have those of
    other CAs; the CA with its key, if it must sign files; and whether it is a new one."""
    paths = [os.path.join(folder, name) for name in (CA_FILE, CA_KEY_FILE)]
    away = [path for path in paths if not os.path.exists(path)]
    if away == paths and may_begin and not _certificates(folder):
        made = new_authority(now)
        return made.certificate, [made.certificate], made, True
    if paths[0] in away or (missing and away):
        raise ConfigError(_without(away, folder, missing, may_begin=may_begin))
    pem = _read(paths[0])
    trusted = load_certificates(pem, paths[0])
    signer = load_authority(pem, _read(paths[1]), *paths) if missing else None
    last = max(trusted, key=lambda each: each.not_valid_after_utc)
    certificate = last if signer is None else signer.certificate
    ends = certificate.not_valid_after_utc
    if ends <= now:
        raise ConfigError(
            f"{paths[0]} was valid until {ends:%Y-%m-%d}: choose another folder, and "
            "give every node and user its new file"
        )
    return certificate, trusted, signer, False


def _certificates(folder: str) -> list[str]:
    """The names of the files with certificates in the folder, which may not exist."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".pem"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be read: {error.strerror}; choose another folder"
        ) from error


def _without(away: Sequence[str], folder: str, missing: Sequence[str], *, may_begin: bool) -> str:
    """The refusal to go on without these files of the CA. missing: what it would have to sign."""
    may_move = may_begin and len(away) > 1
    if not missing:
        away = away[:1]  # the key may be elsewhere on purpose, and nothing needs it now
    is_one = len(away) == 1
    said = f"{' and '.join(away)} {'is' if is_one else 'are'} missing"
    them = "it" if is_one else "them"
    if missing and away[-1].endswith(CA_KEY_FILE):
        said += f", and {', '.join(missing)} must be signed with {them}"
    found = _certificates(folder)
    said += f": put {them} back"
    if may_begin:
        said += ", or choose another folder"
    if may_move:
        said += f", or move {', '.join(found)} away to begin anew"
    others = f"the certificates in {folder}" if found else "the certificates of the other nodes"
    return f"{said}; a new CA would make {others} worthless"


def _ca(folder: str, certificate: Certificate, *, is_new: bool) -> Made:
    return Made(
        name="ca",
        kind="CA",
        file=os.path.join(folder, CA_FILE),
        state="made" if is_new else "kept",
        ends=certificate.not_valid_after_utc,
    )


def _kept(
    name: str,
    kind: str,
    path: str,
    trusted: Sequence[Certificate],
    *,
    hosts: Sequence[str],
    now: datetime.datetime,
    again: str,
) -> Made:
    pem = _read(path)
    try:
        ends, known = described(pem)
        is_own = is_signed_by(pem, trusted)
    except ValueError as error:
        raise ConfigError(
            f"{path} holds no certificate in PEM form: move it away, or make it anew with {again}"
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
    return Made(
        name=name, kind=kind, file=path, state="kept", ends=ends, is_own=is_own, warning=warning
    )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; give this user the right to read it, or put "
            "it back"
        ) from error


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
