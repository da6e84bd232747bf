"""`kvorum users`: users who log in with a password (SCRAM).

A password comes from a prompt, a file or standard input, never from an argument: every user of a
machine sees the arguments of its processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvorum.cli.common import cluster_options, confirm, is_structured, show
from kvorum.cli.completion import user_names
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed

if TYPE_CHECKING:
    from kvorum.cli.user_backends import UserBackend

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_NAMES = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_DEFAULT = "SCRAM-SHA-512"
_COLUMNS = ["user", "mechanism", "iterations"]
PASSWORD_BYTES_MAX = 4_096


def password_options(command: CommandT) -> CommandT:
    """The options of a new password."""
    for option in (
        click.option(
            "--password-file",
            metavar="FILE",
            type=click.Path(dir_okay=False, allow_dash=True),
            help="File whose first line is the password; - is standard input. Else it is asked "
            "for, or read from standard input if that is no terminal.",
        ),
        click.option(
            "--iterations",
            type=click.IntRange(4_096, 16_384),
            default=8_192,
            show_default=True,
            help="Rounds of the hash: more make a guess, and each login, slower.",
        ),
        _mechanism_option("Mechanism of the login. Repeatable.", is_default=True),
    ):
        command = option(command)
    return command


def _mechanism_option(text: str, *, is_default: bool = False) -> Callable[[CommandT], CommandT]:
    return click.option(
        "--mechanism",
        "mechanisms",
        multiple=True,
        type=click.Choice(_NAMES, case_sensitive=False),
        default=(_DEFAULT,) if is_default else (),
        show_default=is_default,
        help=text,
    )


@click.group()
def users() -> None:
    """Users who log in with a password (SCRAM): list, create, delete them, set passwords."""


@users.command("list")
@watchable
@cluster_options
def list_(**options: Any) -> None:
    """List users, with the mechanisms by which they log in."""
    from kvorum.cli.user_credentials import NAMES

    found = _backend(options).users()
    rows = [
        {"user": user, "mechanism": NAMES.get(number, str(number)), "iterations": iterations}
        for user, of_user in sorted(found.items())
        for number, iterations in sorted(of_user.items())
    ]
    show(options["output"], rows, _COLUMNS)


@users.command()
@click.argument("name")
@password_options
@cluster_options
def create(name: str, **options: Any) -> None:
    """Create the user NAME. `kvorum acls` gives the user rights.

    A warning says if User:NAME is in super.users of the broker that was asked.
    """
    backend = _backend(options)
    if backend.users([_checked(name)]):
        raise CommandFailed(
            f"user {name} exists already; kvorum users set-password {name} changes the password"
        )
    _warn_of_super_user(backend, name)
    _set(backend, name, options)


@users.command("set-password")
@click.argument("name", shell_complete=user_names)
@password_options
@cluster_options
def set_password(name: str, **options: Any) -> None:
    """Set the password of the user NAME, by which new logins are checked at once."""
    backend = _backend(options)
    known = backend.users([_checked(name)]).get(name, {})
    if not known:
        raise CommandFailed(f"there is no user {name}; kvorum users create {name} makes one")
    _set(backend, name, options)
    _warn_of_others(name, known, options["mechanisms"])


@users.command()
@click.argument("name", shell_complete=user_names)
@_mechanism_option("Only this mechanism's credential; all by default. Repeatable.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def delete(name: str, mechanisms: tuple[str, ...], is_sure: bool, **options: Any) -> None:
    """Delete the user NAME, who cannot log in any more. ACLs of the user stay."""
    from kvorum.broker.sasl.core.scram import MECHANISMS
    from kvorum.cli.user_credentials import NAMES

    backend = _backend(options)
    known = backend.users([_checked(name)]).get(name, {})
    wanted = [MECHANISMS[each] for each in mechanisms] or sorted(known)
    missing = [NAMES[number] for number in wanted if number not in known]
    if not known or missing:
        what = f" with {missing[0]}" if missing else ""
        raise CommandFailed(f"there is no user {name}{what}; kvorum users list shows all")
    if not is_sure:
        of_what = ", ".join(NAMES[number] for number in wanted)
        confirm(f"Delete user {name} ({of_what})?")
    for number in wanted:
        backend.remove_credential(name, number)
    rows = [{"user": name, "mechanism": NAMES[number], "deleted": True} for number in wanted]
    show(options["output"], rows, ["user", "mechanism", "deleted"])


def _set(backend: UserBackend, name: str, options: dict[str, Any]) -> None:
    from kvorum.broker.sasl.core.scram import MECHANISMS
    from kvorum.cli.user_credentials import new_credential

    password = _password(options["password_file"])
    iterations = options["iterations"]
    rows = []
    # A request may name a user once, so each mechanism has a request of its own.
    for mechanism in dict.fromkeys(options["mechanisms"]):
        credential = new_credential(name, MECHANISMS[mechanism], iterations, password)
        backend.set_credential(credential)
        rows.append(
            {
                "user": name,
                "mechanism": mechanism,
                "iterations": iterations,
                "client_properties": client_properties(name, mechanism),
            }
        )
    if is_structured(options["output"]):
        show(options["output"], rows)
        return
    if options["output"] == "name":
        click.echo(name)
        return
    # Standard output is the client's file alone: kvorum users create alice > alice.properties
    with contextlib.redirect_stdout(sys.stderr):
        show(options["output"], [{key: row[key] for key in _COLUMNS} for row in rows], _COLUMNS)
    properties = rows[0]["client_properties"]
    dots = "the password"
    if properties.get("ssl.truststore.location") == "...":
        dots += ", and the path of the CA's certificate (not for a CA that the system trusts),"
    click.echo(f"\nFor the client, with {dots} in place of the dots:\n", err=True)
    click.echo("\n".join(f"{key}={value}" for key, value in properties.items()))


def client_properties(name: str, mechanism: str) -> dict[str, str]:
    """Kafka's client properties of a user, without the password: the protocol and the CAs are those
    of the command that runs, if it logs in. The path is left open if the command needs none."""
    from kvorum.broker.sasl.core.jaas import SCRAM_MODULE
    from kvorum.client.current import current_security

    own = current_security()
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    found = {
        "security.protocol": own.protocol if own.mechanism else "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{quoted}" password="...";',
    }
    if found["security.protocol"] == "SASL_SSL" and (own.tls is None or own.tls.truststore):
        path = "..." if own.tls is None else os.path.abspath(own.tls.truststore)
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
    return found


def _warn_of_others(name: str, known: Any, mechanisms: tuple[str, ...]) -> None:
    from kvorum.cli.user_credentials import NAMES
    from kvorum.client.failures import warn

    for number in sorted(known):
        if NAMES[number] not in mechanisms:
            warn(
                f"user {name} still has the old password with {NAMES[number]}; set it too with "
                f"--mechanism {NAMES[number]}, or remove it with kvorum users delete"
            )


def _warn_of_super_user(backend: UserBackend, name: str) -> None:
    from kvorum.client.failures import warn

    try:
        is_super = f"User:{name}" in backend.super_users()
    except CommandFailed as error:
        # The right to change users does not imply the right to read configs.
        warn(f"it is not known if User:{name} is in super.users, who may do everything: {error}")
        return
    if is_super:
        warn(
            f"User:{name} is in super.users, so whoever logs in with this password may do "
            "everything; choose another name if that is not meant"
        )


def _checked(name: str) -> str:
    if not name:
        raise click.UsageError("the user's name is empty")
    return name


def _password(file: str | None) -> str:
    """The new password. Raises click.UsageError, CommandFailed."""
    if file is None and sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return str(password)
    source = "standard input" if file in (None, "-") else str(file)
    try:
        if file is None or file == "-":
            data = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2)
        else:
            with open(file, "rb") as opened:
                data = opened.readline(PASSWORD_BYTES_MAX + 2)
        password = data.decode()
    except OSError as error:
        raise CommandFailed(f"{source}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the password in {source} is not UTF-8") from error
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise click.UsageError(f"the password in {source} is empty: its first line must have it")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise click.UsageError(f"the password has more than {PASSWORD_BYTES_MAX} bytes")
    return password


def _backend(options: dict[str, Any]) -> UserBackend:
    from kvorum.cli.user_backends import open_user_backend

    return open_user_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
