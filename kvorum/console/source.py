"""Asks the cluster: the quorum through all of its controllers, the metadata from where the last
look ended. Blocks; one caller at a time.

The console follows the metadata log as a broker does: an idle cluster of 10,000 partitions costs a
look as little as an empty one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.cluster.opening import controllers_of
from kvorum.client.controllers import BlockingControllerClient
from kvorum.client.current import acting_as, current_security
from kvorum.client.failures import CommandFailed
from kvorum.client.security import ClientSecurity
from kvorum.console.broker_source import Source
from kvorum.console.core.replica_log import ReplicaLog
from kvorum.console.core.sample import Answer, QuorumNode, Sample, TimelineLine
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.inspect.history import MetadataHistory, history_of
from kvorum.runtime.clock import wall_ms

NAME = "the cluster"
HISTORY_BYTES_MAX = 256 << 20
"""A log longer than this is read again, from the controllers' own oldest snapshot on."""
BEHIND_LOOKS_MAX = 10
"""The leader's end of the log may be below ours for a moment after an election. If it stays so,
the log was cut (`kvorum quorum recover`), and it is read again."""
SHARED_S = 0.5
"""A reading serves all who ask within this time."""
TIMELINE_LINES_MAX = 300
TIMELINE_EVERY_LOOKS = 5
"""Without a sign of an election, the timelines are read this often."""


class ClusterSource:
    """Reads the state of a cluster from its active controller.

    kind: of the bootstrap addresses, broker or controller.
    """

    def __init__(self, kind: str, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        self._bootstrap = (kind, addresses)
        self._timeout_s = timeout_s
        self._client: BlockingControllerClient | None = None
        self._last: Sample | None = None
        self._looks = 0
        self._behind = 0
        self._image = EMPTY_IMAGE
        self.history = MetadataHistory(name=NAME)

    def read(self) -> Sample:
        """The cluster now. Raises CommandFailed if no controller can be reached, KvorumError for
        metadata that cannot be read."""
        client = self._client or self._open()
        try:
            replies = client.describe_all()
            self._client = client
        except CommandFailed:
            # The next look asks the bootstrap addresses, and the brokers known, once more.
            client.close()
            self._client = None
            raise
        self._looks += 1
        leader = quorum_report.leader_of(list(replies.values()))
        newest = leader or max(replies.values(), key=lambda reply: reply.leader_epoch)
        image = self._follow(client, replies, newest.cluster_id, has_leader=leader is not None)
        sample = Sample(
            taken_ms=wall_ms(),
            cluster_id=newest.cluster_id,
            leader_id=-1 if leader is None else leader.node_id,
            leader_epoch=newest.leader_epoch,
            high_watermark=max(reply.high_watermark for reply in replies.values()),
            no_quorum="" if leader is not None else client.outage(replies),
            nodes=self._nodes_of(newest, has_leader=leader is not None),
            answers={
                node_id: Answer(
                    role=reply.role,
                    epoch=reply.leader_epoch,
                    leaderless_ms=reply.leaderless_ms,
                    log=_log_of(reply),
                )
                for node_id, reply in replies.items()
            },
            addresses=client.addresses(),
            timeline=self._timeline(client, replies),
            image=image,
            first_offset=self.history.first_offset,
            protocol=current_security().protocol,
        )
        self._last = sample
        return sample

    def broker_addresses(self) -> list[tuple[str, int]]:
        """Where brokers listen, the unfenced first. Raises CommandFailed before the first look."""
        if self._last is None:
            raise CommandFailed("the cluster has not answered yet")
        brokers = sorted(
            self._last.image.brokers.values(), key=lambda b: (b.is_fenced, b.broker_id)
        )
        protocol = current_security().protocol
        found = [broker.client_endpoint(protocol) for broker in brokers]
        return [(endpoint.host, endpoint.port) for endpoint in found]

    def _open(self) -> BlockingControllerClient:
        try:
            return controllers_of(*self._bootstrap, self._timeout_s)
        except CommandFailed:
            if self._last is None:
                raise
            # No bootstrap address answers; the metadata names all brokers and controllers.
            known = [
                (node.endpoints[0].host, node.endpoints[0].port)
                for node in self._last.image.controllers.values()
                if node.endpoints
            ]
            if not known:
                raise
            return controllers_of("controller", known, self._timeout_s)

    # --- the metadata -------------------------------------------------------------------------

    def _follow(
        self,
        client: BlockingControllerClient,
        replies: Mapping[int, Any],
        cluster_id: str,
        *,
        has_leader: bool,
    ) -> ClusterImage:
        """The image with all records that are committed by now."""
        held = self.history
        end = max(reply.high_watermark for reply in replies.values())
        self._behind = self._behind + 1 if has_leader and end < held.end_offset else 0
        is_other = self._last is not None and self._last.cluster_id not in ("", cluster_id)
        is_cut = self._behind > BEHIND_LOOKS_MAX
        if is_other or is_cut or len(held.records) > HISTORY_BYTES_MAX:
            held, self._image = MetadataHistory(name=NAME), EMPTY_IMAGE
        if end > held.end_offset:
            copy = client.read_metadata_log(held.end_offset)
            if held.end_offset == 0 or copy.snapshot:
                held = history_of(copy, name=NAME)
                self._image = held.image_at()
            else:
                # Only the new records are stepped through.
                added = MetadataHistory(
                    name=NAME, records=copy.records, log_start_offset=held.end_offset
                )
                held = held.extended(copy)
                self._image = added.advance(self._image, held.end_offset)
        self.history = held
        return self._image

    # --- the quorum ---------------------------------------------------------------------------

    def _nodes_of(self, reply: Any, *, has_leader: bool) -> tuple[QuorumNode, ...]:
        return tuple(
            QuorumNode(
                node_id=replica.node_id,
                kind=kind,
                end_offset=replica.log_end_offset if has_leader else -1,
                last_fetch_ms=replica.last_fetch_timestamp_ms if has_leader else -1,
                last_caught_up_ms=replica.last_caught_up_timestamp_ms if has_leader else -1,
            )
            for kind, replicas in (("voter", reply.voters), ("observer", reply.observers))
            for replica in sorted(replicas, key=lambda r: r.node_id)
        )

    def _timeline(
        self, client: BlockingControllerClient, replies: Mapping[int, Any]
    ) -> tuple[TimelineLine, ...]:
        last = self._last
        if last is not None and self._looks % TIMELINE_EVERY_LOOKS:
            was = {node_id: answer.epoch for node_id, answer in last.answers.items()}
            now = {node_id: reply.leader_epoch for node_id, reply in replies.items()}
            if was == now and last.leader_id >= 0:
                return last.timeline
        try:
            lines = client.read_timelines(is_missing_told=False)
        except CommandFailed:
            # A controller ended between two requests; its lines come with the next look.
            return () if last is None else last.timeline
        return _merged(() if last is None else last.timeline, lines)


class SharedSource:
    """One cluster source for all who may follow the metadata log, with the console's own rights."""

    def __init__(self, source: Source, security: ClientSecurity) -> None:
        self._source = source
        self._security = security
        self._lock = threading.Lock()
        self._taken_s = 0.0
        self._sample: Sample | None = None

    @property
    def history(self) -> MetadataHistory:
        """The metadata log that was read last."""
        return self._source.history

    def read(self) -> Sample:
        """The cluster now, or a moment ago if another reader has just looked. Raises CommandFailed,
        KvorumError."""
        with self._lock, acting_as(self._security):
            if self._sample is None or time.monotonic() - self._taken_s > SHARED_S:
                self._sample = self._source.read()
                self._taken_s = time.monotonic()
            return self._sample

    def broker_addresses(self) -> list[tuple[str, int]]:
        """Where brokers listen. Raises CommandFailed before the first look."""
        return self._source.broker_addresses()


def _log_of(reply: Any) -> ReplicaLog | None:
    """The metadata log of a controller that answered; an earlier build does not tell it."""
    if not reply.epochs:
        return None
    return ReplicaLog(
        start_offset=reply.log_start_offset,
        end_offset=reply.log_end_offset,
        high_watermark=reply.high_watermark,
        epochs=tuple((each.epoch, each.start_offset) for each in reply.epochs),
    )


def _merged(
    known: tuple[TimelineLine, ...], lines: list[tuple[int, int, str]]
) -> tuple[TimelineLine, ...]:
    """All lines by time, the newest TIMELINE_LINES_MAX. Lines of a controller that has died since
    stay."""
    found = [TimelineLine(at_ms=at, node_id=node, text=text) for at, node, text in lines]
    told = set(found)
    kept = [line for line in known if line not in told]
    merged = sorted([*kept, *found], key=lambda line: line.at_ms)
    return tuple(merged[-TIMELINE_LINES_MAX:])


def open_broker(source: Source, timeout_s: float) -> BrokerBackend:
    """A connection to a broker that answers. Raises CommandFailed."""
    addresses = source.broker_addresses()
    if not addresses:
        raise CommandFailed("no broker is registered in the cluster")
    return BrokerBackend(addresses, timeout_s)
