"""The root of the command line. Commands are imported lazily, so that `--help` imports no grpc,
pyspark or schema."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

import click
from click.shell_completion import CompletionItem

from kvorum import __version__
from kvorum.cli.examples import add_examples
from kvorum.cli.profiles import profile_option

_NOUNS = {
    "dev": ("kvorum.cli.dev:dev", "Start a whole cluster on this machine."),
    "init": ("kvorum.cli.init:init", "Write the configuration of a cluster's nodes."),
    "controller": ("kvorum.cli.node:controller", "Run one controller from a TOML file."),
    "broker": ("kvorum.cli.node:broker", "Run one broker from a TOML file."),
    "health": ("kvorum.cli.health:health", "Check leader, voters, brokers, partitions, disks."),
    "cluster": (
        "kvorum.cli.cluster:cluster",
        "May a node be restarted? Restart all, one after the other.",
    ),
    "top": ("kvorum.cli.top:top", "Live view: quorum, brokers, topics and groups by rate."),
    "produce": ("kvorum.cli.produce:produce", "Send records: lines, files, arguments, JSON."),
    "consume": ("kvorum.cli.consume:consume", "Print records, by offset, time or group."),
    "topics": ("kvorum.cli.topics:topics", "Create, list, describe, trim, delete topics."),
    "partitions": (
        "kvorum.cli.partitions:partitions",
        "Add partitions, elect leaders, move or restore replicas.",
    ),
    "brokers": (
        "kvorum.cli.brokers:brokers",
        "List, describe, unregister brokers; their log dirs.",
    ),
    "groups": (
        "kvorum.cli.groups:groups",
        "Consumer groups, and their offsets.",
    ),
    "transactions": (
        "kvorum.cli.transactions:transactions",
        "List, describe, abort transactions; find those that hang.",
    ),
    "configs": ("kvorum.cli.configs:configs", "Dynamic configs and client quotas."),
    "acls": ("kvorum.cli.acls:acls", "Who may do what: list, create, delete ACLs."),
    "users": ("kvorum.cli.users:users", "Users who log in with a password (SCRAM)."),
    "tokens": ("kvorum.cli.tokens:tokens", "Delegation tokens: logins of programs for some days."),
    "features": ("kvorum.cli.features:features", "Feature levels: describe, upgrade, downgrade."),
    "quorum": ("kvorum.cli.quorum:quorum", "Status and voters of the metadata quorum."),
    "raft": ("kvorum.cli.raft:raft", "Flight records of the quorum's nodes: fetch, replay."),
    "metadata": ("kvorum.cli.metadata:metadata", "Inspect the cluster metadata; export it."),
    "snapshot": ("kvorum.cli.snapshot:snapshot", "Inspect snapshot files on disk."),
    "log": ("kvorum.cli.log:log", "Inspect and verify logs on disk."),
    "certs": ("kvorum.cli.certs:certs", "Certificates for TLS on a laptop or in a lab."),
    "console": ("kvorum.cli.console:console", "Serve a page that shows the cluster."),
    "chaos": ("kvorum.cli.chaos:chaos", "Run experiments on a real cluster, or simulations."),
    "tour": ("kvorum.cli.tour:tour", "Lessons: a claim, and the commands that show it."),
    "demo": ("kvorum.cli.demo:demo", "Break a cluster under load, check it, analyse it."),
    "lake": ("kvorum.cli.lake:lake", "Runs and exported metadata as Parquet, for Spark."),
    "profile": ("kvorum.cli.profile:profile", "Named sets of options: addresses, output, timeout."),
    "completion": ("kvorum.cli.completion:completion", "Completion for bash, zsh and fish."),
    "report": ("kvorum.cli.report:report", "Check a run again and rewrite its report."),
    "version": ("kvorum.cli.version:version", "The version of Kvorum."),
}


_EXTRAS = {
    "jinja2": "chaos",
    "msgspec": "chaos",
    "numpy": "chaos",
    "requests": "chaos",
    "toxiproxy": "chaos",
    "pyarrow": "export",
    "starlette": "web",
    "uvicorn": "web",
}
"""Packages that only some commands need, with the extra of this package that installs each."""


_LIBRDKAFKA = "confluent_kafka"
_WITHOUT_LIBRDKAFKA = (
    "this needs confluent-kafka, which is not installed, as it has no wheel for Python 3.15 yet: "
    "use an earlier Python, or pip install confluent-kafka with librdkafka and a C compiler"
)

_OF_COMMANDS = {
    "-b": "HOST:PORT",
    "--bootstrap-server": "HOST:PORT",
    "--bootstrap-controller": "HOST:PORT",
    "--command-config": "FILE",
    "--timeout": "SECONDS",
    "-o": "json",
    "--output": "json",
    "-w": "",
    "--watch": "",
}
"""Options that most commands have, with an example of their values."""


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are called; --help imports none of
    them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NOUNS:
            return None
        module_name, _, attribute = _NOUNS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), attribute)
        add_examples(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _NOUNS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, _NOUNS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete as click does, but without importing every command."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in _NOUNS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _NOUNS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kvorum")
@profile_option
def cli() -> None:
    """A Kafka-compatible cluster with a KRaft-style metadata quorum: run it, break it,
    understand it.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable, 4 no quorum or not healthy, 5 not
    authorized, 6 verdict failed.
    """


def _misplaced(error: click.ClickException) -> click.UsageError | None:
    """The error for an option of commands that stands before the command: where it belongs."""
    context = error.ctx if isinstance(error, click.NoSuchOption) else None
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    value = _OF_COMMANDS.get(option)
    if value is None or context is None or not isinstance(context.command, click.Group):
        return None
    commands = context.command.list_commands(context)
    below = next((name for name in ("topics", "list", "describe") if name in commands), commands[0])
    below = "topics list" if below == "topics" else below
    line = f"{context.command_path} {below} {option} {value}".strip()
    return click.UsageError(f"{option} goes behind the command, as in {line}", context)


def main() -> None:
    """Entry point of the console script."""
    from kvorum.client.failures import CommandFailed

    try:
        code = cli.main(prog_name="kvorum", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        (_misplaced(error) or error).show()
        sys.exit(2)
    except CommandFailed as error:
        # A closed output must not change the exit code.
        with contextlib.suppress(BrokenPipeError):
            click.echo(f"kvorum: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == _LIBRDKAFKA:
            click.echo(f"kvorum: {_WITHOUT_LIBRDKAFKA}", err=True)
        elif package in _EXTRAS:
            extra = _EXTRAS[package]
            click.echo(f"kvorum: this needs {package}: pip install 'kvorum[{extra}]'", err=True)
        else:
            raise
        sys.exit(1)
    except BrokenPipeError:
        # The reader closed the pipe early (`| head`). Discard the rest of the buffer; otherwise the
        # flush at exit would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"kvorum: {where}{error.strerror or error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
