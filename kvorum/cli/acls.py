"""`kvorum acls`: list, create and delete ACLs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvorum.cli.common import cluster_options, confirm, is_structured, show, show_outcomes
from kvorum.cli.completion import acl_principals, group_names, topic_names
from kvorum.cli.watch import watchable
from kvorum.client.failures import Row, fail_on_errors, warn
from kvorum.runtime.errors import ConfigError

if TYPE_CHECKING:
    from kvorum.cli.acl_backends import AclBackend
    from kvorum.cli.acl_rules import Whom
    from kvorum.metadata.image.acl import Acl, AclFilter, AclOperation

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_ACL = ["principal", "host", "resource_type", "resource_name", "pattern_type", "operation",
        "permission"]  # fmt: skip
_PATTERNS = ("any", "match", "literal", "prefixed")


@click.group()
def acls() -> None:
    """List, create and delete ACLs: which user may do what, and from where."""


def resource_options(command: CommandT) -> CommandT:
    """The options that name resources and operations."""
    for option in (
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--transactional-id",
            "transactional_ids",
            multiple=True,
            metavar="ID",
            help="A transactional id; '*' for all. Repeatable.",
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="NAME",
            shell_complete=group_names,
            help="A group; '*' for all. Repeatable.",
        ),
        click.option(
            "--topic",
            "topics",
            multiple=True,
            metavar="NAME",
            shell_complete=topic_names,
            help="A topic; '*' for all. Repeatable.",
        ),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            metavar="NAMES",
            help="Operations such as read,describe-configs, or all. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def filter_options(command: CommandT) -> CommandT:
    """The options that select ACLs."""
    for option in (
        click.option(
            "--pattern",
            type=click.Choice(_PATTERNS),
            default="any",
            show_default=True,
            help="Type of the resource pattern; match: every pattern that matches the name.",
        ),
        click.option(
            "--permission", type=click.Choice(("allow", "deny")), help="Only ACLs that do so."
        ),
        click.option(
            "--host", "hosts", multiple=True, metavar="HOST", help="The host of an ACL. Repeatable."
        ),
        click.option(
            "--principal",
            "principals",
            multiple=True,
            metavar="User:NAME",
            shell_complete=acl_principals,
            help="The principal of an ACL. Repeatable.",
        ),
    ):
        command = option(command)
    return resource_options(command)


@acls.command("list")
@watchable
@filter_options
@cluster_options
def list_(**options: Any) -> None:
    """List ACLs: all of them, or those that the options select."""
    filters = _filters(options)
    found = _selected(_backend(options), filters)
    show(options["output"], [_row(acl) for acl in found], _ACL)


@acls.command()
@click.option(
    "--allow-principal",
    "allowed",
    multiple=True,
    metavar="User:NAME",
    help="Who may do it; 'User:*' is everybody. Repeatable.",
)
@click.option(
    "--deny-principal",
    "denied",
    multiple=True,
    metavar="User:NAME",
    help="Who may not do it, whatever other ACLs allow. Repeatable.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="HOST",
    help="From where: an address, or a range such as 10.0.0.0/8. Everywhere by default.",
)
@click.option(
    "--deny-host", "denied_hosts", multiple=True, metavar="HOST", help="From where not, likewise."
)
@resource_options
@click.option("--prefixed", "is_prefixed", is_flag=True, help="The names are prefixes of names.")
@click.option(
    "--producer",
    "is_producer",
    is_flag=True,
    help="What producers to the topics need: write, describe, create.",
)
@click.option(
    "--consumer",
    "is_consumer",
    is_flag=True,
    help="What consumers of the topics in the groups need: read, describe.",
)
@click.option(
    "--idempotent",
    "is_idempotent",
    is_flag=True,
    help="With --producer: idempotent-write on the cluster, for brokers before Kafka 2.8.",
)
@click.option("--dry-run", is_flag=True, help="Show the ACLs; create none.")
@cluster_options
def create(dry_run: bool, **options: Any) -> None:
    """Create ACLs: one for each principal, host, operation and resource. One that exists already
    stays."""
    wanted = _wanted(options)
    _warn_of_prefixed_wildcards(wanted)
    results = [("NONE", "")] * len(wanted) if dry_run else _backend(options).create(wanted)
    done = "would be created" if dry_run else "created"
    _show_results(options, wanted, results, done=done)


@acls.command()
@filter_options
@click.option("--all", "is_all", is_flag=True, help="Delete every ACL of the cluster.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the ACLs; delete none.")
@cluster_options
def delete(is_all: bool, is_sure: bool, dry_run: bool, **options: Any) -> None:
    """Delete the ACLs that the options select, after a question."""
    names = ("topics", "groups", "transactional_ids", "is_cluster", "operations", "principals")
    if any(options[name] for name in (*names, "hosts", "permission")) == is_all:
        raise click.UsageError("say which ACLs to delete, or give --all")
    filters = _filters(options)
    backend = _backend(options)
    found = _selected(backend, filters)
    if dry_run:
        _show_results(options, found, [("NONE", "")] * len(found), done="would be deleted")
        return
    if found and not is_sure:
        if not is_structured(options["output"]):
            show(options["output"], [_row(acl) for acl in found], _ACL)
        confirm(f"Delete {_count(found)}?")
    # Only the ACLs that were shown are deleted, none that was created since.
    _show_results(options, found, backend.delete(found), done="deleted")


def _wanted(options: dict[str, Any]) -> list[Acl]:
    """The ACLs that the options of `create` mean. Raises click.UsageError."""
    from kvorum.cli import acl_rules as rules

    try:
        whom = _whom(options)
        resources = rules.resources_of(
            options["topics"],
            options["groups"],
            options["transactional_ids"],
            is_cluster=options["is_cluster"],
        )
        operations = rules.operations_of(options["operations"])
        is_producer, is_consumer = options["is_producer"], options["is_consumer"]
        if options["is_idempotent"] and not is_producer:
            raise click.UsageError("--idempotent is for --producer")
        if is_producer or is_consumer:
            if operations:
                raise click.UsageError(
                    "--producer and --consumer name the operations: leave --operation out"
                )
            return rules.convenient_acls(
                resources,
                whom,
                is_producer=is_producer,
                is_consumer=is_consumer,
                is_idempotent=options["is_idempotent"],
                is_prefixed=options["is_prefixed"],
            )
        if not resources:
            raise click.UsageError("give --topic, --group, --transactional-id or --cluster")
        if not operations:
            raise click.UsageError("give --operation, --producer or --consumer")
        return rules.new_acls(resources, operations, whom, is_prefixed=options["is_prefixed"])
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _warn_of_prefixed_wildcards(wanted: Sequence[Acl]) -> None:
    """Warn of a PREFIXED `*`: the asterisk means every name only as a LITERAL pattern."""
    from kvorum.metadata.image.acl import WILDCARD, PatternType

    prefixed = PatternType.PREFIXED
    found = [acl for acl in wanted if (acl.resource_name, acl.pattern_type) == (WILDCARD, prefixed)]
    for kind in sorted({acl.resource_type.name.lower().replace("_", "-") for acl in found}):
        warn(
            f"--{kind} '*' with --prefixed matches only names that begin with an asterisk; for "
            "every name, leave --prefixed out"
        )


def _whom(options: dict[str, Any]) -> list[Whom]:
    from kvorum.cli.acl_rules import Whom, principal_of
    from kvorum.metadata.access.hosts import is_matching_host
    from kvorum.metadata.image.acl import USER_PREFIX, WILDCARD, Permission

    found = []
    for permission, who, where in (
        (Permission.ALLOW, "allowed", "allowed_hosts"),
        (Permission.DENY, "denied", "denied_hosts"),
    ):
        principals, hosts = options[who], options[where]
        verb = permission.name.lower()
        if hosts and not principals:
            raise click.UsageError(f"--{verb}-host needs --{verb}-principal")
        for host in hosts:
            if not is_matching_host(host):
                raise click.UsageError(
                    f"--{verb}-host={host!r} would never match: it is neither an address nor a "
                    "range of them, and names of hosts are not looked up; give an address, a range "
                    "such as 10.0.0.0/8, or '*'"
                )
        for text in principals:
            kind = principal_of(text).partition(":")[0] + ":"
            if kind != USER_PREFIX:
                warn(
                    f"--{verb}-principal={text} matches nobody here: every client of this cluster "
                    f"is a {USER_PREFIX}NAME"
                )
        if principals:
            found.append(
                Whom(
                    permission=permission,
                    principals=[principal_of(text) for text in principals],
                    hosts=hosts or [WILDCARD],
                )
            )
    if not found:
        raise click.UsageError("give --allow-principal or --deny-principal")
    return found


def _selected(backend: AclBackend, filters: Sequence[AclFilter]) -> list[Acl]:
    """The ACLs that any of the filters selects. Raises CommandFailed."""
    return list(dict.fromkeys(acl for wanted in filters for acl in backend.describe(wanted)))


def _filters(options: dict[str, Any]) -> list[AclFilter]:
    """The filters that the options mean. Raises click.UsageError."""
    from kvorum.cli import acl_rules as rules
    from kvorum.metadata.image.acl import PatternType, Permission

    resources = rules.resources_of(
        options["topics"],
        options["groups"],
        options["transactional_ids"],
        is_cluster=options["is_cluster"],
    )
    try:
        operations: list[AclOperation] = rules.operations_of(options["operations"])
        principals = [rules.principal_of(text) for text in options["principals"]]
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if options["pattern"] == "match" and not resources:
        raise click.UsageError("--pattern match needs the name of a resource, such as --topic")
    return rules.filters_of(
        resources,
        operations,
        principals,
        options["hosts"],
        pattern_type=PatternType[options["pattern"].upper()],
        permission=Permission[(options["permission"] or "any").upper()],
    )


def _show_results(
    options: dict[str, Any],
    found: Sequence[Acl],
    results: Sequence[tuple[str, str]],
    *,
    done: str,
) -> None:
    rows = [
        {**_row(acl), "error": error, "message": message}
        for acl, (error, message) in zip(found, results, strict=True)
    ]
    show_outcomes(options["output"], rows, [*_ACL, "result", "message"], done=done)
    fail_on_errors(rows, f"not {done}", _name)


def _name(row: Row) -> str:
    return f"{row['operation']} of {row['principal']} on {row['resource_name']}"


def _row(acl: Acl) -> Row:
    from kvorum.cli.acl_rules import acl_columns

    return acl_columns(acl)


def _count(found: Sequence[Acl]) -> str:
    return f"{len(found)} ACL{'s' if len(found) > 1 else ''}"


def _backend(options: dict[str, Any]) -> AclBackend:
    from kvorum.cli.acl_backends import open_acl_backend

    return open_acl_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
