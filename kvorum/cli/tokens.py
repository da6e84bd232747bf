"""`kvorum tokens`: delegation tokens, with which programs log in as a user for some days (KIP-48).

Only `create` shows a token's HMAC, which is as good as a password. The other commands take the
token's id, and ask the cluster for the HMAC, so that it is never an argument.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import (
    INT64_MAX,
    broker_addresses,
    cluster_options,
    confirm,
    is_structured,
    show,
)
from kvorum.cli.watch import watchable
from kvorum.client.failures import CommandFailed, Row

if TYPE_CHECKING:
    from kvorum.cli.token_backend import BrokerTokens, FoundToken

_COLUMNS = ["token_id", "owner", "requester", "renewers", "issued", "expires", "max"]
_period = click.IntRange(min=1, max=INT64_MAX)


@click.group()
def tokens() -> None:
    """Delegation tokens: create, list, renew them, let them expire."""


@tokens.command()
@click.option("--owner", metavar="USER", help="The user whose token it is; you, by default.")
@click.option("--renewer", "renewers", metavar="USER", multiple=True, help="May renew it too.")
@click.option(
    "--max-lifetime-ms", type=_period, help="Its life at most; the cluster's maximum by default."
)
@cluster_options
def create(
    owner: str | None, renewers: tuple[str, ...], max_lifetime_ms: int | None, **options: Any
) -> None:
    """Create a token, and print it with its HMAC, which no command shows again."""
    named = [_user(name) for name in renewers]
    own = None if owner is None else _user(owner)
    backend = _backend(options)
    token = backend.create(own, named, -1 if max_lifetime_ms is None else max_lifetime_ms)
    password = base64.b64encode(token.hmac).decode()
    jaas = client_jaas(token.token_id, "...")
    row = {**_row(token), "hmac": password, "sasl_jaas_config": jaas}
    if is_structured(options["output"]):
        show(options["output"], row)
        return
    show(options["output"], [_row(token)], _COLUMNS)
    click.echo(f"\nIts HMAC, shown this once: {password}")
    click.echo("\nFor the client, with SCRAM and the HMAC in place of the dots:\n")
    click.echo(f"sasl.jaas.config={jaas}")


@tokens.command("list")
@click.option("--owner", "owners", metavar="USER", multiple=True, help="Only tokens of this user.")
@watchable
@cluster_options
def list_(owners: tuple[str, ...], **options: Any) -> None:
    """List the tokens that you may see, without their HMACs."""
    named = [_user(name) for name in owners]
    found = _backend(options).find(named)
    show(options["output"], [_row(token) for token in found], _COLUMNS)


@tokens.command()
@click.argument("token_id")
@click.option(
    "--period-ms", type=_period, help="Until it expires; the cluster's default if not given."
)
@cluster_options
def renew(token_id: str, period_ms: int | None, **options: Any) -> None:
    """Renew the token TOKEN_ID, of which you are the owner or a renewer."""
    backend = _backend(options)
    renewed = backend.renew(_found(backend, token_id), -1 if period_ms is None else period_ms)
    show(options["output"], [_row(renewed)], _COLUMNS)


@tokens.command()
@click.argument("token_id")
@click.option(
    "--after-ms",
    type=click.IntRange(min=0, max=INT64_MAX),
    help="Let it expire after this time; without it, the token is removed now.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@cluster_options
def expire(token_id: str, after_ms: int | None, is_sure: bool, **options: Any) -> None:
    """Remove the token TOKEN_ID, or let it expire soon. Nobody can log in with it then."""
    backend = _backend(options)
    token = _found(backend, token_id)
    if after_ms is None and not is_sure:
        confirm(f"Remove token {token_id} of {token.owner}?")
    changed = backend.expire(token, -1 if after_ms is None else after_ms)
    if after_ms is None:
        row = {"token_id": token_id, "owner": token.owner, "removed": True}
        show(options["output"], [row], list(row))
        return
    show(options["output"], [_row(changed)], _COLUMNS)


def client_jaas(token_id: str, password: str) -> str:
    """Kafka's client property sasl.jaas.config of a token."""
    from kvorum.broker.sasl.core.jaas import SCRAM_MODULE

    return f'{SCRAM_MODULE} required username="{token_id}" password="{password}" tokenauth="true";'


def _row(token: FoundToken) -> Row:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": _time_text(token.issue_timestamp_ms),
        "expires": _time_text(token.expiration_timestamp_ms),
        "max": _time_text(token.max_timestamp_ms),
    }


def _time_text(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _found(backend: BrokerTokens, token_id: str) -> FoundToken:
    for token in backend.find():
        if token.token_id == token_id:
            return token
    raise CommandFailed(
        f"there is no token {token_id} that you may see; kvorum tokens list shows all that you may"
    )


def _user(name: str) -> str:
    """The name of a user, given as NAME or User:NAME. Raises click.UsageError."""
    kind, colon, rest = name.partition(":")
    if colon and kind != "User":
        raise click.UsageError(
            f"{name!r} is no user: tokens have users as owners and renewers; write User:NAME, and "
            f"User:{name} for a user whose name has a colon"
        )
    if colon:
        name = rest
    if not name:
        raise click.UsageError("a user's name is empty; write NAME or User:NAME")
    return name


def _backend(options: dict[str, Any]) -> BrokerTokens:
    from kvorum.cli.token_backend import BrokerTokens

    addresses = broker_addresses(options, "brokers alone know who asks for a token")
    backend = BrokerTokens(addresses, options["timeout"])
    click.get_current_context().call_on_close(backend.close)
    return backend
