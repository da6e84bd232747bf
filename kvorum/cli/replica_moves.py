"""`kvorum brokers move-replicas`: move replicas between the data directories of one broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import INT32_MAX, INT64_MAX, cluster_options, show, show_outcomes
from kvorum.client.failures import CommandFailed, fail_on_errors
from kvorum.client.rights import on_cluster
from kvorum.runtime.text import whole_number

if TYPE_CHECKING:
    from kvorum.cli.directory_plan import Directory, Move, Replica
    from kvorum.client.connection import KafkaConnection
    from kvorum.wire.log_dirs_codec import DescribedDirectory

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
POLL_S = 0.5
_PLANNED = ["topic", "partition", "size_bytes", "source", "target"]
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
    connection = _connection(broker_id, options)
    directories = _directories(connection, broker_id)
    moves = _moves(directories, named, source=source, target=target)
    rows = [
        {"topic": move.replica[0], "partition": move.replica[1], **move._asdict()} for move in moves
    ]
    for row in rows:
        del row["replica"]
    if dry_run:
        show(options["output"], rows, _PLANNED)
        return
    if throttle is not None:
        _set_throttle(broker_id, throttle, options)
    errors = _alter(connection, moves)
    outcomes = [
        {
            "replica": f"{topic}:{partition}",
            "error": errors.get((topic, partition), "UNKNOWN_SERVER_ERROR"),
            "source": source_path,
            "target": target_path,
        }
        for (topic, partition), _, source_path, target_path in moves
    ]
    if is_waiting and all(row["error"] == "NONE" for row in outcomes):
        _wait(connection, broker_id, moves)
    show_outcomes(options["output"], outcomes, _OUTCOME, done="moved" if is_waiting else "moving")
    fail_on_errors(outcomes, "not moved", lambda row: row["replica"], lambda _: on_cluster("ALTER"))


def _connection(broker_id: int, options: dict[str, Any]) -> KafkaConnection:
    from kvorum.cli.backends import open_backend
    from kvorum.client.connection import KafkaConnection

    backend = open_backend(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    for row in backend.brokers():
        if row["broker_id"] == broker_id:
            return KafkaConnection([(row["host"], row["port"])], options["timeout"])
    raise CommandFailed(f"broker {broker_id} is not registered")


def _directories(connection: KafkaConnection, broker_id: int) -> list[DescribedDirectory]:
    from kvorum.client.failures import check
    from kvorum.wire.log_dirs_codec import read_answer

    answer = connection.ask("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
    error, found = read_answer(answer[1:])  # skip the header's empty tagged fields
    check(error, None, f"broker {broker_id}", on_cluster("DESCRIBE"))
    return found


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


def _alter(connection: KafkaConnection, moves: list[Move]) -> dict[Replica, str]:
    """The error of each move, NONE if it has begun."""
    from kvorum.runtime.errors import error_code_of

    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), _, _, target in moves:
        dirs.setdefault(target, {}).setdefault(topic, []).append(partition)
    if not dirs:
        return {}
    values = {
        "dirs": [
            {
                "path": path,
                "topics": [{"name": t, "partitions": numbers} for t, numbers in topics.items()],
            }
            for path, topics in dirs.items()
        ]
    }
    answer = connection.call("alter_replica_log_dirs", 34, 2, values, flexible=True)
    return {
        (topic.topic_name, row.partition_index): error_code_of(row.error_code.value).name
        for topic in answer.results
        for row in topic.partitions
    }


def _wait(connection: KafkaConnection, broker_id: int, moves: list[Move]) -> None:
    """Wait until no move of these is under way. Raises CommandFailed if one has ended without its
    replica in the target."""
    while True:
        found = _directories(connection, broker_id)
        futures = {(r.topic, r.partition_id) for d in found for r in d.contents if r.is_future}
        if not futures & {move.replica for move in moves}:
            break
        time.sleep(POLL_S)
    place = {replica: d.path for d in map(_planned, found) for replica in d.sizes}
    left = [move for move in moves if place.get(move.replica) != move.target]
    if left:
        names = ", ".join(f"{topic}:{partition}" for (topic, partition), *_ in left[:5])
        raise CommandFailed(
            f"{len(left)} moves have ended without their swap ({names}): another move or a failed "
            "disk; the broker's log says why"
        )
