"""The data directories of one broker: the requests that only this broker answers (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kvorum.client.failures import CommandFailed
from kvorum.client.rights import on_cluster

if TYPE_CHECKING:
    from kvorum.cli.backends import Backend
    from kvorum.cli.directory_plan import Replica
    from kvorum.client.connection import KafkaConnection
    from kvorum.wire.log_dirs_codec import DescribedDirectory

NOT_HERE = ("REPLICA_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION")
"""The broker does not have the replica, and remembers the directory for it until a restart."""


class BrokerDirectories:
    """A connection to one broker for its data directories."""

    def __init__(self, broker_id: int, connection: KafkaConnection) -> None:
        self.broker_id = broker_id
        self._connection = connection

    def described(self) -> list[DescribedDirectory]:
        """All data directories of the broker. Raises CommandFailed."""
        from kvorum.client.failures import check
        from kvorum.wire.log_dirs_codec import read_answer

        answer = self._connection.ask("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
        error, found = read_answer(answer[1:])  # skip the header's empty tagged fields
        check(error, None, f"broker {self.broker_id}", on_cluster("DESCRIBE"))
        return found

    def alter(self, wanted: Mapping[Replica, str]) -> dict[Replica, str]:
        """Ask for each replica to be in a directory. Returns the error of each, NONE if its move
        has begun. Raises CommandFailed."""
        from kvorum.runtime.errors import error_code_of

        dirs: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), path in wanted.items():
            dirs.setdefault(path, {}).setdefault(topic, []).append(partition)
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
        answer = self._connection.call("alter_replica_log_dirs", 34, 2, values, flexible=True)
        errors = {
            (topic.topic_name, row.partition_index): error_code_of(row.error_code.value).name
            for topic in answer.results
            for row in topic.partitions
        }
        return {replica: errors.get(replica, "UNKNOWN_SERVER_ERROR") for replica in wanted}


def directories_of(
    backend: Backend, broker_id: int, options: Mapping[str, Any]
) -> BrokerDirectories:
    """Connect to a broker of the cluster, until the command ends. Raises CommandFailed."""
    from kvorum.client.connection import KafkaConnection

    for row in backend.brokers():
        if row["broker_id"] == broker_id:
            connection = KafkaConnection([(row["host"], row["port"])], options["timeout"])
            context = click.get_current_context(silent=True)
            if context is not None:
                context.call_on_close(connection.close)
            return BrokerDirectories(broker_id, connection)
    raise CommandFailed(f"broker {broker_id} is not registered")


def places(found: Sequence[DescribedDirectory], *, is_future: bool = False) -> dict[Replica, str]:
    """The path of each replica; is_future: of each that moves, the path that it moves to."""
    return {
        (replica.topic, replica.partition_id): directory.path
        for directory in found
        for replica in directory.contents
        if replica.is_future == is_future
    }
