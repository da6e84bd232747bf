"""The cluster as brokers show it to one user: what ACLs let that user describe. Blocks; one caller
at a time.

The metadata log is for nodes (CLUSTER_ACTION), so there is no history here, and no timeline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kvorum.client.cluster.broker_backend import BrokerBackend
from kvorum.client.current import acting_as, current_security
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.client.rights import on_cluster
from kvorum.client.security import ClientSecurity
from kvorum.console.core.sample import Answer, QuorumNode, Sample
from kvorum.metadata.image.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.runtime.clock import wall_ms
from kvorum.runtime.ids import UUID_ZERO, uuid_from_text
from kvorum.runtime.text import address_text

T = TypeVar("T")

ASK_AGAIN_S = 30.0
"""Time after which the controllers are asked again for a user whom they refused."""
_FOLLOWING, _DESCRIBING = on_cluster("CLUSTER_ACTION"), on_cluster("DESCRIBE")
NO_HISTORY = f"the metadata log is for users with {_FOLLOWING}, which this one does not have"
_HIDDEN = {"elections": str(_FOLLOWING), "min_isr": str(_FOLLOWING)}
"""Facts that brokers show to nobody, or only in answers that are not asked for."""


class Source(Protocol):
    """Where a desk reads the cluster."""

    @property
    def history(self) -> MetadataHistory:
        """The metadata log that was read. Raises CommandFailed for a user who may not read it."""

    def read(self) -> Sample:
        """The cluster now. Raises CommandFailed, KvorumError."""

    def broker_addresses(self) -> list[tuple[str, int]]:
        """Where brokers listen. Raises CommandFailed before the first look."""


class BrokerSource:
    """Asks brokers as a user.

    addresses: of some of them.
    security: the user's; None for the command's own.
    """

    def __init__(
        self,
        addresses: list[tuple[str, int]],
        timeout_s: float,
        security: ClientSecurity | None = None,
    ) -> None:
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._security = security or current_security()
        self._lock = threading.Lock()
        self._backend: BrokerBackend | None = None
        self._known: list[tuple[str, int]] = []

    @property
    def history(self) -> MetadataHistory:
        """Raises CommandFailed."""
        raise CommandFailed(NO_HISTORY, EXIT_NOT_AUTHORIZED)

    def read(self) -> Sample:
        """The cluster now, as far as the user may describe it. Raises CommandFailed."""
        return self._asked(self._sample)

    def may_follow(self) -> bool:
        """True if the user has CLUSTER_ACTION on the cluster now. Raises CommandFailed."""
        from kvorum.metadata.image.acl import AclOperation

        operations = self._asked(BrokerBackend.cluster_operations)
        return bool(operations >> AclOperation.CLUSTER_ACTION & 1)

    def _asked(self, ask: Callable[[BrokerBackend], T]) -> T:
        """Ask over the open connection, or over a new one. The lock is needed because a page's
        question may come in another thread during a reading."""
        with self._lock, acting_as(self._security):
            try:
                if self._backend is None:
                    addresses = [*self._known, *self._addresses]
                    self._backend = BrokerBackend(addresses, self._timeout_s)
                return ask(self._backend)
            except CommandFailed:
                self.close()
                raise

    def broker_addresses(self) -> list[tuple[str, int]]:
        """Where brokers listen. Raises CommandFailed before the first look."""
        if not self._known:
            raise CommandFailed("the cluster has not answered yet")
        return self._known

    def close(self) -> None:
        """End the connection; the next look opens another one."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def _sample(self, backend: BrokerBackend) -> Sample:
        topics, brokers = backend.topics(None), backend.brokers()
        self._known = [
            (row["host"], row["port"]) for row in sorted(brokers, key=lambda row: row["is_fenced"])
        ]
        image = ClusterImage(
            brokers=Map({row["broker_id"]: _broker(row) for row in brokers}),
            topics=Map({_id_of(row): _topic(row) for row in topics}),
            topic_ids=Map({row["topic"]: _id_of(row) for row in topics}),
        )
        try:
            quorum = backend.quorum()
        except CommandFailed as error:
            if error.exit_code == EXIT_UNREACHABLE:
                raise  # the connection is over, and what was read may be old
            reason, hidden = str(error), _HIDDEN
            if error.exit_code == EXIT_NOT_AUTHORIZED:
                reason = f"the quorum is for users with {_DESCRIBING}"
                hidden = {**_HIDDEN, "quorum": str(_DESCRIBING)}
            return Sample(
                taken_ms=wall_ms(),
                no_quorum=reason,
                image=image,
                hidden=hidden,
                protocol=current_security().protocol,
            )
        return _with_quorum(quorum, image)


class FallbackSource:
    """Reads the metadata log while the controllers let the user in, else what brokers show."""

    def __init__(self, followed: Source, shown: BrokerSource) -> None:
        self._followed, self._shown = followed, shown
        self._source: Source = followed
        self._again_s = 0.0

    @property
    def history(self) -> MetadataHistory:
        """Raises CommandFailed for a user who may not read the metadata log now."""
        if self._source is self._followed:
            self._check()
        return self._source.history

    def read(self) -> Sample:
        """The cluster now. Raises CommandFailed, KvorumError."""
        if self._source is self._followed or time.monotonic() >= self._again_s:
            try:
                self._check()
                sample = self._followed.read()
                self._source = self._followed
                return sample
            except CommandFailed as error:
                if error.exit_code != EXIT_NOT_AUTHORIZED:
                    raise
                self._source = self._shown
                self._again_s = time.monotonic() + ASK_AGAIN_S
        return self._shown.read()

    def broker_addresses(self) -> list[tuple[str, int]]:
        """Where brokers listen. Raises CommandFailed before the first look."""
        return self._source.broker_addresses()

    def _check(self) -> None:
        """Raise CommandFailed for a user who may not follow the metadata log. No check is needed
        here: the controllers refuse such a user themselves."""


class SessionSource(FallbackSource):
    """For a user who signed in by a password, which controllers do not know: brokers say whether
    the user has CLUSTER_ACTION, and the console's own certificate then reads the log."""

    def _check(self) -> None:
        if not self._shown.may_follow():
            raise CommandFailed(NO_HISTORY, EXIT_NOT_AUTHORIZED)


def _with_quorum(quorum: dict[str, Any], image: ClusterImage) -> Sample:
    leader_id, epoch = quorum["leader_id"], quorum["leader_epoch"]
    nodes, answers = [], {}
    for kind, rows in (("voter", quorum["voters"]), ("observer", quorum["observers"])):
        for row in sorted(rows, key=lambda row: row["node_id"]):
            node_id = row["node_id"]
            nodes.append(
                QuorumNode(
                    node_id=node_id,
                    kind=kind,
                    end_offset=row["log_end_offset"],
                    last_fetch_ms=row["last_fetch_timestamp"],
                    last_caught_up_ms=row["last_caught_up_timestamp"],
                )
            )
            if kind == "voter":
                role = "leader" if node_id == leader_id else "follower"
                answers[node_id] = Answer(role=role, epoch=epoch, leaderless_ms=0)
    return Sample(
        taken_ms=wall_ms(),
        cluster_id=quorum["cluster_id"],
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=quorum["high_watermark"],
        nodes=tuple(nodes),
        answers=answers,
        addresses={n["node_id"]: address_text(n["host"], n["port"]) for n in quorum["nodes"]},
        image=image,
        hidden=_HIDDEN,
        protocol=current_security().protocol,
    )


def _id_of(topic: dict[str, Any]) -> bytes:
    return uuid_from_text(topic["topic_id"])


def _topic(row: dict[str, Any]) -> TopicImage:
    return TopicImage(
        name=row["topic"],
        topic_id=_id_of(row),
        partitions=Map(
            {
                each["partition"]: PartitionImage(
                    replicas=tuple(each["replicas"]),
                    isr=tuple(each["isr"]),
                    leader=each["leader"],
                    leader_epoch=each["leader_epoch"],
                    partition_epoch=0,
                )
                for each in row["partitions"]
            }
        ),
    )


def _broker(row: dict[str, Any]) -> BrokerImage:
    protocol = current_security().protocol
    return BrokerImage(
        broker_id=row["broker_id"],
        broker_epoch=-1,
        incarnation_id=UUID_ZERO,
        endpoints=(Endpoint(protocol, row["host"], row["port"], protocol),),
        rack=row["rack"],
        is_fenced=row["is_fenced"],
        in_controlled_shutdown=False,
    )
