"""`kvorum brokers move-replicas`: move replicas between the data directories of one broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvorum.cli.broker_directories import directories_of, places
from kvorum.cli.common import INT32_MAX, INT64_MAX, cluster_options, show, show_outcomes
from kvorum.client.failures import CommandFailed, fail_on_errors, warn
from kvorum.client.rights import on_cluster
from kvorum.runtime.text import whole_number

if TYPE_CHECKING:
    from kvorum.cli.broker_directories import BrokerDirectories
    from kvorum.cli.directory_plan import Directory, Move, Replica
    from kvorum.wire.log_dirs_codec import DescribedDirectory

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
POLL_S = 0.5
_PLANNED = ["topic", "partition", "result", "size_bytes", "source", "target"]
_OUTCOME = ["replica", "result", "source", "target"]


@click.command("move-replicas")
@click.argument("broker_id", type=click.IntRange(0, INT32_MAX))
@click.argument("replicas", nargs=-1, metavar="[TOPIC:PARTITION]...")
@click.option("--to", "target", metavar="PATH", help="The directory that takes the replicas.")
@click.option("--from", "source", metavar="PATH", help="Move all replicas out of this directory.")
@click.option("--balance", "is_balance", is_flag=True, help="Even out the bytes of all.")
@click.option("--dry-run", is_flag=True, help="Show the moves; begin none.")
@click.option(
    "--throttle",
    type=click.IntRange(1, INT64_MAX),
    metavar="BYTES",
    help=f"Bytes per second of all moves of this broker ({RATE}); stays set.",
)
@click.option("--wait", "is_waiting", is_flag=True, help="Return when the moves have ended.")
@cluster_options
def move_replicas(
    broker_id: int,
    replicas: tuple[str, ...],
    target: str | None,
    source: str | None,
    is_balance: bool,
    dry_run: bool,
    throttle: int | None,
    is_waiting: bool,
    **options: Any,
) -> None:
    """Move replicas between the data directories of a broker: the named ones with --to, all of a
    directory with --from (to --to, or to the emptiest others), or some with --balance.

    The broker goes on serving a replica while it is copied. Naming the directory where a replica is
    ends its move. Cordon a directory (cordoned.log.dirs) before it is emptied.
    """
    if sum((bool(replicas), source is not None, is_balance)) != 1:
        raise click.UsageError("name replicas, or give --from, or --balance")
    if bool(replicas) and target is None:
        raise click.UsageError("replicas need --to")
    if is_balance and target is not None:
        raise click.UsageError("--to is for named replicas and --from")
    named = _named(replicas)
    asked = _asked(broker_id, options)
    found = asked.described()
    moves = _moves(found, named, source=source, target=target)
    futures = places(found, is_future=True)
    if dry_run:
        rows = [
            {
                "topic": move.replica[0],
                "partition": move.replica[1],
                "result": _result(move, futures, "to move"),
                "size_bytes": move.size_bytes,
                "source": move.source,
                "target": move.target,
            }
            for move in moves
        ]
        show(options["output"], rows, _PLANNED)
        return
    if throttle is not None:
        _set_throttle(broker_id, throttle, options)
    errors = asked.alter({move.replica: move.target for move in moves})
    is_waiting = is_waiting and all(error == "NONE" for error in errors.values())
    if is_waiting:
        _wait(asked, moves, _outage_s_max(options))
    done = "moved" if is_waiting else "moving"
    outcomes = [
        {
            "replica": ":".join(map(str, move.replica)),
            "error": (error := errors[move.replica]),
            "result": _result(move, futures, done) if error == "NONE" else error,
            "source": move.source,
            "target": move.target,
        }
        for move in moves
    ]
    show_outcomes(options["output"], outcomes, _OUTCOME, done=done)
    fail_on_errors(outcomes, "not moved", lambda row: row["replica"], lambda _: on_cluster("ALTER"))


def _asked(broker_id: int, options: dict[str, Any]) -> BrokerDirectories:
    from kvorum.cli.backends import open_backend

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    return directories_of(backend, broker_id, options)


def _result(move: Move, futures: Mapping[Replica, str], done: str) -> str:
    """futures: where the replicas went that were moving when the command began."""
    if move.source != move.target:
        return done
    return "there already, its move ends" if move.replica in futures else "there already"


def _named(replicas: tuple[str, ...]) -> list[Replica]:
    found = []
    for text in replicas:
        topic, _, number = text.rpartition(":")
        partition = whole_number(number)
        if not topic or partition is None or partition > INT32_MAX:
            raise click.UsageError(f"{text!r} is no TOPIC:PARTITION")
        found.append((topic, partition))
    return found


def _moves(
    found: list[DescribedDirectory],
    named: list[Replica],
    *,
    source: str | None,
    target: str | None,
) -> list[Move]:
    """The moves that the command asks for. Raises CommandFailed."""
    from kvorum.cli.directory_plan import Move, NoTarget, balanced, drained

    paths = [directory.path for directory in found]
    for name, path in (("--from", source), ("--to", target)):
        if path is not None and path not in paths:
            raise CommandFailed(f"{name} {path}: the broker's data directories are {paths}")
    online = [_planned(directory) for directory in found if not directory.error]
    place = {replica: d.path for d in online for replica in d.sizes}
    sizes = {replica: size for d in online for replica, size in d.sizes.items()}
    if named:
        return [Move(r, sizes.get(r, 0), place.get(r, ""), target or "") for r in named]
    if source is None:
        return balanced(online)
    if source not in {directory.path for directory in online}:
        raise CommandFailed(f"--from {source}: the directory is offline; nothing can be read there")
    if target is not None:
        return [Move(r, sizes[r], source, target) for r in sizes if place[r] == source]
    try:
        return drained(online, source)
    except NoTarget as error:
        raise CommandFailed(str(error)) from error


def _planned(directory: DescribedDirectory) -> Directory:
    from kvorum.cli.directory_plan import Directory

    return Directory(
        path=directory.path,
        is_cordoned=directory.is_cordoned,
        sizes={
            (replica.topic, replica.partition_id): replica.size_bytes
            for replica in directory.contents
            if not replica.is_future
        },
    )


def _set_throttle(broker_id: int, bytes_per_second: int, options: dict[str, Any]) -> None:
    from kvorum.cli.config_backends import open_config_backend

    configs = open_config_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    change = ("set", RATE, str(bytes_per_second))
    configs.alter_configs("broker", str(broker_id), [change], dry_run=False)


def _outage_s_max(options: dict[str, Any]) -> float | None:
    """The --timeout that the user has given; its default is too short for the restart of a
    broker."""
    given = click.get_current_context().get_parameter_source("timeout")
    return float(options["timeout"]) if given is ParameterSource.COMMANDLINE else None


def _wait(asked: BrokerDirectories, moves: list[Move], outage_s_max: float | None) -> None:
    """Wait until no move of these is under way. A broker that restarts continues its moves, so the
    wait goes on meanwhile; outage_s_max: None for as long as it takes.

    Raises CommandFailed if a move has ended without its replica in the target."""
    found = _next_described(asked, outage_s_max)
    while places(found, is_future=True).keys() & {move.replica for move in moves}:
        time.sleep(POLL_S)
        found = _next_described(asked, outage_s_max)
    place = places(found)
    left = [move for move in moves if place.get(move.replica) != move.target]
    if left:
        names = ", ".join(f"{topic}:{partition}" for (topic, partition), *_ in left[:5])
        raise CommandFailed(
            f"{len(left)} moves have ended without their swap ({names}): no room in the target, "
            "another move or a failed disk; the broker's log says why"
        )


def _next_described(
    asked: BrokerDirectories, outage_s_max: float | None
) -> list[DescribedDirectory]:
    """The broker's next answer. Raises BrokerGone after an outage of outage_s_max."""
    from kvorum.client.connection import BrokerGone

    since_s: float | None = None
    while True:
        try:
            return asked.described()
        except BrokerGone as error:
            if since_s is None:
                since_s = time.monotonic()
                warn(f"{error.reason}; its moves go on when it is back: waiting for it")
            if outage_s_max is not None and time.monotonic() >= since_s + outage_s_max:
                raise
        time.sleep(POLL_S)
