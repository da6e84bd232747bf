"""`kvorum completion`: completion for a shell, with the names of topics, groups and nodes.

Names are asked for at each press of the tab key. A cluster that does not answer gives none: a word
half typed is no place for an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import get_completion_class

from kvorum.cli.client_security import use_for_completion
from kvorum.cli.data_dir import chosen_data_dir
from kvorum.cli.profiles import profile_value
from kvorum.client.failures import CommandFailed

_TIMEOUT_S = 1.0
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    bash: eval "$(kvorum completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc. fish:
    kvorum completion fish > ~/.config/fish/completions/kvorum.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise CommandFailed(f"click knows no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "kvorum", "_KVORUM_COMPLETE").source())


def topic_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The cluster's topics that begin with the word."""
    return _names(context, incomplete, lambda b: [row["topic"] for row in b.topics(None)])


def broker_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the brokers that begin with the word."""
    return _names(context, incomplete, lambda b: [str(row["broker_id"]) for row in b.brokers()])


def controller_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The ids of the voters that begin with the word."""
    return _names(
        context, incomplete, lambda b: [str(row["node_id"]) for row in b.quorum()["voters"]]
    )


def node_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of voters and brokers that begin with the word."""
    return [
        *controller_ids(context, parameter, incomplete),
        *broker_ids(context, parameter, incomplete),
    ]


def lab_nodes(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The nodes of the cluster of `kvorum dev` whose data directory the command uses."""
    from kvorum.launch.cluster.cluster_file import read_cluster_file
    from kvorum.runtime.errors import ConfigError

    try:
        found = read_cluster_file(chosen_data_dir(context))
    except ConfigError:
        return []
    return [] if found is None else [n.name for n in found.nodes if n.name.startswith(incomplete)]


def group_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The cluster's groups that begin with the word."""

    def ask(backend: Any) -> list[str]:
        from kvorum.client.groups.group_client import GroupClient

        client = GroupClient(backend, _TIMEOUT_S)
        try:
            return [row["group"] for row in client.list_groups([])]
        finally:
            client.close()

    return _names(context, incomplete, ask)


def user_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The users with credentials that begin with the word."""
    from kvorum.cli.user_backends import open_user_backend

    return _names(context, incomplete, lambda b: list(b.users()), open_user_backend)


def acl_principals(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The principals of ACLs that begin with the word."""
    from kvorum.cli.acl_backends import open_acl_backend
    from kvorum.metadata.image.acl import AclFilter

    def ask(backend: Any) -> list[str]:
        return list({acl.principal for acl in backend.describe(AclFilter())})

    return _names(context, incomplete, ask, open_acl_backend)


def _names(
    context: click.Context,
    incomplete: str,
    ask: Callable[[Any], list[str]],
    open_: Callable[..., Any] | None = None,
) -> list[str]:
    from kvorum.cli.backends import open_backend

    try:
        server, controller = (
            context.params.get(key) or profile_value(context, key)
            for key in ("bootstrap_server", "bootstrap_controller")
        )
        # The context closes what is opened within it.
        with context:
            use_for_completion(context)
            backend = (open_ or open_backend)(server, controller, _TIMEOUT_S)
            return sorted(name for name in ask(backend) if name.startswith(incomplete))
    except (CommandFailed, click.UsageError):
        return []
