"""`kvorum configs`: describe and alter dynamic configs and client quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvorum.cli.common import cluster_options, show
from kvorum.cli.watch import watchable

if TYPE_CHECKING:
    from kvorum.cli.config_backends import ConfigBackend
    from kvorum.client.configs.config_rows import Change

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DEFAULT_NAME = "<default>"
"""Means the default entity in place of a name."""

_RESOURCES = ("topic", "broker", "broker-logger", "group")
_ENTITIES = (*_RESOURCES, "client", "user", "ip")
_TYPES = {"client": "client-id"}

_ORDER = "kvorum.cli.configs.order"

#: (type, name); a name of None is the default entity.
Entity = tuple[tuple[str, str | None], ...]


def entity_options(command: CommandT) -> CommandT:
    """The options that name an entity: its kind, its name, or the default."""
    for option in (
        click.option("--default", "is_default", is_flag=True, help="The default entity."),
        click.option(
            "--name",
            "names",
            multiple=True,
            help=f"Name of the entity; {DEFAULT_NAME} is the default entity.",
        ),
        click.option(
            "--entity",
            "entities",
            multiple=True,
            required=True,
            type=click.Choice(_ENTITIES),
            help="Kind of the entity. A user and a client may be given together, with a name each.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def configs() -> None:
    """Describe and alter dynamic configs and client quotas."""


class _InOrder(click.Command):
    """A command that records the order of its options, since a --name belongs to the --entity
    before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


@configs.command(cls=_InOrder)
@watchable
@entity_options
@click.option("--all", "is_all", is_flag=True, help="Include defaults and the broker's file.")
@cluster_options
def describe(
    entities: tuple[str, ...],
    names: tuple[str, ...],
    is_default: bool,
    is_all: bool,
    **options: Any,
) -> None:
    """Show the configs that are set. Without a name: of every entity of that kind. For example
    --entity user --name alice --entity client shows all clients of that user."""
    if entities[0] in _RESOURCES:
        resource = _one_resource(entities, names, is_default)
        rows = _backend(options).describe_configs(*resource, is_all=is_all)
        columns = ["entity", "name", "value", "source"]
        if is_all:
            columns += ["type", "read_only"]
    else:
        if is_all:
            raise click.UsageError(
                "--all is for topics, brokers and groups: quotas have no defaults"
            )
        found = _quota_entity(entities, names, is_default, may_lack_names=True)
        rows = _backend(options).describe_quotas(*found)
        columns = ["entity", "name", "value"]
    show(options["output"], rows, columns)


@configs.command()
@entity_options
@click.option(
    "--set", "to_set", multiple=True, metavar="KEY=VALUE", help="Set a value. Repeatable."
)
@click.option(
    "--set-file",
    "to_set_from",
    multiple=True,
    metavar="KEY=FILE",
    help="Set a value to the text of a file: passwords belong there. Repeatable.",
)
@click.option("--delete", "to_delete", multiple=True, metavar="KEY", help="Remove a value.")
@click.option(
    "--append", "to_append", multiple=True, metavar="KEY=ITEMS", help="Add items to a list."
)
@click.option(
    "--subtract",
    "to_subtract",
    multiple=True,
    metavar="KEY=ITEMS",
    help="Remove items from a list.",
)
@click.option("--dry-run", is_flag=True, help="Check only; change nothing.")
@cluster_options
def alter(
    entities: tuple[str, ...],
    names: tuple[str, ...],
    is_default: bool,
    to_set: tuple[str, ...],
    to_set_from: tuple[str, ...],
    to_delete: tuple[str, ...],
    to_append: tuple[str, ...],
    to_subtract: tuple[str, ...],
    dry_run: bool,
    **options: Any,
) -> None:
    """Change configs of a topic, a broker or a group, quotas of clients, users and addresses, or
    the levels of a broker's loggers until it ends."""
    changes: list[Change] = [("set", *_assignment(text)) for text in to_set]
    _refuse_passwords(changes)
    changes += [("set", *_from_file(text)) for text in to_set_from]
    changes += [("delete", name, None) for name in to_delete]
    changes += [("append", *_assignment(text)) for text in to_append]
    changes += [("subtract", *_assignment(text)) for text in to_subtract]
    if not changes:
        raise click.UsageError(
            "nothing to do: give --set, --set-file, --delete, --append or --subtract"
        )
    if entities[0] in _RESOURCES:
        kind, name = _one_resource(entities, names, is_default)
        if name is None:
            raise click.UsageError(f"say which {kind} with --name")
        label = _backend(options).alter_configs(kind, name, changes, dry_run=dry_run)
    else:
        if to_append or to_subtract:
            raise click.UsageError("quotas are numbers: --append and --subtract are for lists")
        quotas = [(key, None if op == "delete" else _number(key, v)) for op, key, v in changes]
        parts, _ = _quota_entity(entities, names, is_default, may_lack_names=False)
        label = _backend(options).alter_quotas(parts, quotas, dry_run=dry_run)
    rows = [
        {
            "entity": label,
            "operation": op,
            "name": key,
            "value": _shown(entities[0], key, value),
            "dry_run": dry_run,
        }
        for op, key, value in changes
    ]
    show(options["output"], rows, ["entity", "operation", "name", "value", "dry_run"])


def _one_resource(
    entities: tuple[str, ...], names: tuple[str, ...], is_default: bool
) -> tuple[str, str | None]:
    """(topic or broker, name); "" is the default of all brokers, None all entities."""
    kind = entities[0]
    if len(entities) > 1 or len(names) > 1:
        raise click.UsageError(f"give one --entity {kind} and one --name")
    if is_default and names:
        raise click.UsageError("give --name or --default, not both")
    name = DEFAULT_NAME if is_default else (names[0] if names else None)
    if name == "":
        raise click.UsageError(f"--name of the {kind} is empty; {DEFAULT_NAME} is the default one")
    if name == DEFAULT_NAME:
        if kind == "topic":
            raise click.UsageError(
                "topics have no default entity; set the broker property behind a topic's config "
                "with --entity broker --default"
            )
        if kind == "group":
            raise click.UsageError(
                "groups have no default entity; set the broker property `group.KEY`, or the one of "
                "the same name, in the brokers' files"
            )
        return kind, ""
    return kind, name


def _quota_entity(
    entities: tuple[str, ...],
    names: tuple[str, ...],
    is_default: bool,
    *,
    may_lack_names: bool,
) -> tuple[Entity, tuple[str, ...]]:
    """(the parts that have a name, the entity types for which any name matches)."""
    if any(entity in _RESOURCES for entity in entities):
        raise click.UsageError(
            "a topic, a broker or a group cannot be combined with another entity"
        )
    if len(set(entities)) < len(entities):
        raise click.UsageError("each kind of --entity may be given once")
    if is_default:
        if names or len(entities) > 1:
            raise click.UsageError(
                f"--default is for one entity without --name; else write --name '{DEFAULT_NAME}'"
            )
        names = (DEFAULT_NAME,)
    types = tuple(_TYPES.get(entity, entity) for entity in entities)
    if len(names) > len(entities) or (len(names) < len(entities) and not may_lack_names):
        raise click.UsageError("give as many --name as --entity, in the same order")
    places = range(len(names)) if len(names) == len(types) else _places(names)
    parts = zip((types[at] for at in places), names, strict=True)
    # In the order in which the metadata keeps quotas, so that every answer prints an entity alike.
    named = tuple((t, None if name == DEFAULT_NAME else name) for t, name in sorted(parts))
    return named, tuple(t for at, t in enumerate(types) if at not in places)


def _places(names: tuple[str, ...]) -> list[int]:
    """For each name, the index of the entity that it follows, if there are fewer names than
    entities."""
    places: list[int] = []
    at = -1
    for option in click.get_current_context().meta[_ORDER]:
        if option == "entities":
            at += 1
        elif option == "names":
            places.append(at)
    if -1 in places or len(set(places)) < len(names):
        raise click.UsageError("give each --name behind the --entity that it is of")
    return places


def _assignment(text: str) -> tuple[str, str]:
    from kvorum.runtime.config import parse_assignment
    from kvorum.runtime.errors import ConfigError

    try:
        return parse_assignment(text)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _refuse_passwords(changes: list[Change]) -> None:
    from kvorum.launch.config.secret_properties import refuse_on_command_line
    from kvorum.runtime.errors import ConfigError

    try:
        refuse_on_command_line(
            (name for _, name, _ in changes),
            "put it into a file and give --set-file {name}=FILE",
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _from_file(text: str) -> tuple[str, str]:
    """The key, and the text of the file without the line breaks at its end."""
    name, path = _assignment(text)
    try:
        with open(path, encoding="utf-8") as file:
            return name, file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise click.UsageError(f"--set-file {name}: cannot read {path}: {reason}") from error


def _shown(entity: str, name: str, value: str | None) -> str | None:
    """The value as it may be printed: an unknown config may be a password of a plug-in."""
    if entity not in ("topic", "broker"):
        return value
    from kvorum.client.configs.config_rows import RESOURCE_TYPES
    from kvorum.metadata.configs.secrets import shown_config

    return shown_config(RESOURCE_TYPES[entity], name, value)


def _number(key: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError as error:
        raise click.UsageError(f"{key}={text} is not a number") from error


def _backend(options: dict[str, Any]) -> ConfigBackend:
    from kvorum.cli.config_backends import open_config_backend

    return open_config_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
