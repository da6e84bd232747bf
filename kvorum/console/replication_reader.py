"""Asks every broker for the logs of its replicas, as a consumer that reads from any replica
(KIP-392). Blocks; one caller at a time.

Brokers are asked side by side, each with a short timeout: the page is about brokers that hang.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kvorum.client.cluster.brokers import Partition
from kvorum.client.cluster.fetches import FETCH_KEY, FETCH_VERSION, fetch_request
from kvorum.client.cluster.offsets import DEBUG_CONSUMER, EARLIEST, offsets_request
from kvorum.client.connection import KafkaConnection, UserRefused
from kvorum.client.current import current_security
from kvorum.client.failures import CommandFailed, refusal
from kvorum.client.rights import on_topic
from kvorum.client.security import ClientSecurity
from kvorum.console.core.replica_log import EpochEnd, Questions, ReplicaLog, Seen, probe
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode

WANTED_S = 5.0
"""How long partitions are read after a page has asked for them."""
ANSWER_S = 0.7
AGAIN_S = 2.0
"""A broker that did not answer in time is left alone for this long."""
LOGS_KEPT_MAX = 2_000
"""Replicas whose last state is kept, for a broker that does not answer later."""
OFFSET_ABOVE_ALL = (1 << 62) - 1

_ReplicaKey = tuple[bytes, int, int]
"""Topic id, partition, and broker id: a topic of the same name is another one."""
Probes = dict[Partition, Questions]
Replication = Mapping[Partition, Mapping[int, Seen]]
"""Answers about the replicas of partitions, by broker id."""


class ReplicationReader:
    """image: the cluster's metadata now; None before it was read."""

    def __init__(self, image: Callable[[], ClusterImage | None]) -> None:
        self._image = image
        self._lock = threading.Lock()
        self._wanted: dict[Partition, float] = {}
        self._logs: dict[_ReplicaKey, ReplicaLog] = {}
        self._brokers: dict[int, _Broker] = {}

    def want(self, keys: Iterable[Partition]) -> None:
        """Read these partitions for the next WANTED_S."""
        until_s = time.monotonic() + WANTED_S
        with self._lock:
            self._wanted.update(dict.fromkeys(keys, until_s))

    def read(self) -> Replication:
        """The wanted partitions' replicas. Raises UserRefused if a broker refuses the user."""
        image, now_s = self._image(), time.monotonic()
        with self._lock:
            self._wanted = {key: until for key, until in self._wanted.items() if until > now_s}
            wanted = list(self._wanted)
        if image is None or not wanted:
            self.close()  # brokers would end idle connections, and the next reading would fail
            return {}
        probes = self._probes(image, wanted)
        security = current_security()
        found: dict[Partition, dict[int, Seen]] = {key: {} for key in wanted}
        with ThreadPoolExecutor(max(len(probes), 1), "console-replicas") as threads:
            asked = {
                broker_id: threads.submit(self._broker(broker_id, image, security).ask, of_broker)
                for broker_id, of_broker in probes.items()
            }
        for broker_id, future in asked.items():
            for key, answer in future.result().items():
                replica = _replica_key(image, key, broker_id)
                if isinstance(answer, str):
                    found[key][broker_id] = Seen(log=self._logs.get(replica), problem=answer)
                else:
                    found[key][broker_id] = Seen(log=answer)
                    # The newest stand last; the oldest are forgotten first.
                    self._logs.pop(replica, None)
                    self._logs[replica] = answer
        for replica in list(self._logs)[: max(len(self._logs) - LOGS_KEPT_MAX, 0)]:
            del self._logs[replica]
        return found

    def close(self) -> None:
        """End the connections; the next reading opens others."""
        for broker in self._brokers.values():
            broker.close()

    def _probes(self, image: ClusterImage, wanted: list[Partition]) -> dict[int, Probes]:
        """The questions to each broker that has a replica."""
        probes: dict[int, Probes] = {}
        for key in wanted:
            topic = image.topic(key[0])
            partition = None if topic is None else topic.partitions.get(key[1])
            if partition is None:
                continue
            for broker_id in partition.replicas:
                before = self._logs.get(_replica_key(image, key, broker_id))
                questions = probe(partition.leader_epoch, before)
                probes.setdefault(broker_id, {})[key] = questions
        return probes

    def _broker(self, broker_id: int, image: ClusterImage, security: ClientSecurity) -> _Broker:
        """The broker at its address of now: a new process may have another one."""
        registration = image.brokers.get(broker_id)
        address = None
        if registration is not None:
            endpoint = registration.client_endpoint(security.protocol)
            address = (endpoint.host, endpoint.port)
        held = self._brokers.get(broker_id)
        if held is None or held.address != address:
            if held is not None:
                held.close()
            held = self._brokers[broker_id] = _Broker(address, security)
        return held


class _Broker:
    """A connection to one broker, for questions about its replicas.

    address: None for one that is not registered.
    """

    def __init__(self, address: tuple[str, int] | None, security: ClientSecurity) -> None:
        self.address = address
        self._security = security
        self._connection: KafkaConnection | None = None
        self._again_s = 0.0
        self._problem = ""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, probes: Probes) -> dict[Partition, ReplicaLog | str]:
        """For each partition its log, or the reason why there is no answer. Raises UserRefused."""
        if self.address is None:
            return dict.fromkeys(probes, "the broker is not registered")
        begun_s = time.monotonic()
        if begun_s < self._again_s:
            return dict.fromkeys(probes, self._problem)
        try:
            if self._connection is None:
                self._connection = KafkaConnection(
                    [self.address], ANSWER_S, security=self._security, answer_slack_s=0.0
                )
            return self._answers(self._connection, probes)
        except UserRefused:
            raise
        except CommandFailed as error:
            self.close()
            self._problem = str(error)
            if time.monotonic() - begun_s > ANSWER_S / 2:
                self._again_s = time.monotonic() + AGAIN_S
            return dict.fromkeys(probes, self._problem)

    def _answers(
        self, connection: KafkaConnection, probes: Probes
    ) -> dict[Partition, ReplicaLog | str]:
        """Ask all probes' questions, a request for each round of them. Raises CommandFailed."""
        found: dict[Partition, ReplicaLog | str] = {}
        asked = {key: next(questions) for key, questions in probes.items()}
        while asked:
            places = {key: (OFFSET_ABOVE_ALL, epoch) for key, epoch in asked.items()}
            values = fetch_request(places, bytes_max=1)
            reply = connection.call("fetch", FETCH_KEY, FETCH_VERSION, values, flexible=True)
            if reply.error_code:
                raise refusal(reply.error_code, None, "the fetch of a replica's log")
            answers = {
                (topic.topic, row.partition_index): row
                for topic in reply.responses
                for row in topic.partitions
            }
            again: dict[Partition, int] = {}
            for key in asked:
                row = answers.get(key)
                if row is None:
                    found[key] = "the broker's answer leaves it out"
                    continue
                if row.error_code not in (0, ErrorCode.OFFSET_OUT_OF_RANGE):
                    right = on_topic("READ", key[0])
                    found[key] = str(refusal(row.error_code, None, f"{key[0]}-{key[1]}", right))
                    continue
                try:
                    again[key] = probes[key].send(_end_in(row))
                except StopIteration as over:
                    log: ReplicaLog | None = over.value
                    found[key] = self._empty(connection, key) if log is None else log
            asked = again
        return found

    def _empty(self, connection: KafkaConnection, key: Partition) -> ReplicaLog:
        """A log that has no record. Raises CommandFailed."""
        values = offsets_request({key: EARLIEST}, replica_id=DEBUG_CONSUMER)
        reply = connection.call("list_offsets", 2, 7, values, flexible=True)
        offsets = [int(row.offset) for topic in reply.topics for row in topic.partitions]
        start = max(offsets, default=0)
        return ReplicaLog(
            start_offset=start, end_offset=start, high_watermark=start, last_stable_offset=start
        )


def _replica_key(image: ClusterImage, key: Partition, broker_id: int) -> _ReplicaKey:
    name, number = key
    return image.topic_ids.get(name, b""), number, broker_id


def _end_in(row: Any) -> EpochEnd | None:
    diverging = row.diverging_epoch
    if row.error_code or diverging is None or diverging.epoch < 0:
        return None
    return EpochEnd(
        epoch=diverging.epoch,
        end_offset=diverging.end_offset,
        start_offset=row.log_start_offset,
        high_watermark=row.high_watermark,
        last_stable_offset=row.last_stable_offset,
    )
