"""Brokers in one process under a hand-made controller, for tests.

The controller keeps an image, replays records on it with the real Delta and publishes to every
broker. Each broker has its own ReplicaManager, log directory and listener; they replicate over
real sockets. `Harness` runs it all on a loop in a thread, so that blocking clients can talk to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kvorum.broker.api.services import Services
from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.controller_api import QuorumDescription, ReplicaState
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.network.peer_connection import Connect
from kvorum.broker.partition.replica import Replica
from kvorum.broker.sasl.core.authentication import Authentication
from kvorum.broker.server import KafkaServer
from kvorum.metadata.access.tokens import token_key
from kvorum.metadata.controller.decide import Context, TokenRules
from kvorum.metadata.controller.decide.acls import create_acls, delete_acls
from kvorum.metadata.controller.decide.configs import alter_configs
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.controller.decide.partitions import create_partitions
from kvorum.metadata.controller.decide.quotas import alter_client_quotas
from kvorum.metadata.controller.decide.reassignment import alter_reassignments, list_reassignments
from kvorum.metadata.controller.decide.scram import alter_scram_credentials
from kvorum.metadata.controller.decide.tokens import (
    create_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import (
    BrokerRegistrationChange,
    Config,
    Endpoint,
    FeatureLevel,
    Partition,
    PartitionChange,
    Record,
    RegisterBroker,
    RemoveTopic,
    Topic,
)
from kvorum.metadata.requests.acl_requests import CreateAcls
from kvorum.metadata.requests.controller_requests import (
    AllocateProducerIds,
    AlteredPartition,
    AlterPartition,
    AlterReassignments,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    ElectedLeader,
    ElectLeaders,
    ProducerIdBlock,
)
from kvorum.metadata.requests.directory_requests import AssignReplicas
from kvorum.metadata.rpc.calls import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    ALTER_PARTITION,
    ALTER_REASSIGNMENTS,
    ALTER_SCRAM_CREDENTIALS,
    ASSIGN_REPLICAS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    EXPIRE_DELEGATION_TOKEN,
    LIST_REASSIGNMENTS,
    RENEW_DELEGATION_TOKEN,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
    ControllerCall,
    Reply,
    Request,
)
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import new_uuid
from kvorum.runtime.sockets import connect_tcp
from tests.polling import eventually
from tests.test_broker.directories import DirectoriesSide, DirectoryHost
from tests.test_broker.raw_client import RawClient

CLUSTER_ID = "kvorum-test-cluster-01"
DEADLINE_S = 15.0
QUICK = BrokerConfig(replica_fetch_wait_max_ms=50)
"""Followers ask again soon: most tests wait for one that has nothing to fetch."""
QUIET = dataclasses.replace(QUICK, log_flush_offset_checkpoint_interval_ms=3_600_000)
"""No checkpoint is written by chance."""
T = TypeVar("T")
_ports = itertools.count(24000 + random.SystemRandom().randrange(0, 3000))


class FakeController:
    """The metadata of the cluster; every change is published to all brokers at once."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.rng = random.Random(7)
        self.managers: dict[int, ReplicaManager] = {}
        self.next_producer_id = 1000
        self.token_secret = ""
        """delegation.token.secret.key"""
        self.wall_ms = 1_800_000_000_000
        self.is_answering = True
        self.refuse_alter_with: ErrorCode | None = None
        self.alter_requests: list[AlterPartition] = []
        self.assignments: list[AssignReplicas] = []
        self.commit(*(FeatureLevel(f.name, f.max_level) for f in SUPPORTED))

    def commit(self, *records: Record) -> None:
        delta = Delta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(end_offset=self.image.end_offset + len(records), epoch=1)
        for manager in self.managers.values():
            manager.publish(delta, self.image)

    def create(
        self, name: str, assignments: list[tuple[int, ...]], configs: dict[str, str] | None = None
    ) -> bytes:
        topic_id = new_uuid(self.rng)
        records: list[Record] = [
            Config(2, name, key, value) for key, value in (configs or {}).items()
        ]
        records.append(Topic(name, topic_id))
        for partition_id, replicas in enumerate(assignments):
            live = tuple(r for r in replicas if self._is_active(r)) or replicas[:1]
            records.append(Partition(topic_id, partition_id, replicas, live, live[0]))
        self.commit(*records)
        return topic_id

    def lead(self, topic_id: bytes, partition_id: int, leader: int, isr: tuple[int, ...]) -> None:
        self.commit(PartitionChange(topic_id, partition_id, isr=isr, leader=leader))

    def _is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active


class BrokerSide(DirectoriesSide):
    """The Controller protocol as one broker sees it."""

    def __init__(self, controller: FakeController, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id

    @property
    def broker_epoch(self) -> int:
        broker = self._controller.image.brokers.get(self._broker_id)
        return -1 if broker is None else broker.broker_epoch

    @property
    def is_lost(self) -> bool:
        return not self._controller.is_answering

    def _refused(self) -> Rejected | None:
        if self._controller.is_answering:
            return None
        return Rejected(ErrorCode.REQUEST_TIMED_OUT, "no controller answers")

    async def request(
        self, call: ControllerCall[Request, Reply], request: Request, timeout_ms: int = 0
    ) -> Reply | Rejected:
        """The answer of this call's method: made by the real decision, or set by the test."""
        await asyncio.sleep(0)
        if call is ALTER_PARTITION:
            self._controller.alter_requests.append(request)
        if refused := self._refused():
            return refused
        reply: Reply | Rejected = self._ANSWERS[call](self, request)
        return reply

    @property
    def voters(self) -> Any:
        return self

    async def add(self, request: Any, timeout_ms: int) -> Rejected:
        """AddVoter, refused: the voters of this quorum do not change."""
        return Rejected(ErrorCode.INVALID_REQUEST, "the voters of this quorum do not change")

    remove = add

    def create_topics(self, request: CreateTopics) -> tuple[CreatedTopic, ...]:
        made = []
        for topic in request.topics:
            if topic.name in self._controller.image.topic_ids:
                made.append(CreatedTopic(name=topic.name, error=ErrorCode.TOPIC_ALREADY_EXISTS))
                continue
            ids = self._controller.image.active_broker_ids()
            count = max(topic.num_partitions, 1)
            factor = max(topic.replication_factor, 1)
            if factor > len(ids):
                error = ErrorCode.INVALID_REPLICATION_FACTOR
                made.append(CreatedTopic(name=topic.name, error=error))
                continue
            assignments = list(topic.assignments) or [
                tuple(ids[(i + k) % len(ids)] for k in range(factor)) for i in range(count)
            ]
            topic_id = self._controller.create(topic.name, assignments, dict(topic.configs))
            made.append(
                CreatedTopic(
                    name=topic.name,
                    topic_id=topic_id,
                    num_partitions=len(assignments),
                    replication_factor=len(assignments[0]),
                )
            )
        return tuple(made)

    def delete_topics(self, request: DeleteTopics) -> tuple[DeletedTopic, ...]:
        gone = []
        for item in request.topics:
            image = self._controller.image
            topic = image.topic(item.name) if item.name else image.topics.get(item.topic_id)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                gone.append(DeletedTopic(name=item.name, topic_id=item.topic_id, error=error))
                continue
            self._controller.commit(RemoveTopic(topic.topic_id))
            gone.append(DeletedTopic(name=topic.name, topic_id=topic.topic_id))
        return tuple(gone)

    def alter_partition(self, request: AlterPartition) -> tuple[AlteredPartition, ...]:
        return tuple(self._alter(proposal) for proposal in request.proposals)

    def _alter(self, proposal: Any) -> AlteredPartition:
        controller = self._controller
        key = (proposal.topic_id, proposal.partition_id)
        known = controller.image.partition(*key)
        error = controller.refuse_alter_with
        if known is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif proposal.leader_epoch != known.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != known.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        for broker_id, epoch in proposal.new_isr:
            broker = controller.image.brokers.get(broker_id)
            if broker is None or not broker.is_active or epoch not in (-1, broker.broker_epoch):
                error = error or ErrorCode.INELIGIBLE_REPLICA
        if error is not None:
            return AlteredPartition(topic_id=key[0], partition_id=key[1], error=error)
        isr = tuple(broker_id for broker_id, _ in proposal.new_isr)
        controller.commit(PartitionChange(*key, isr=isr))
        new = controller.image.partition(*key)
        assert new is not None
        return AlteredPartition(
            topic_id=key[0],
            partition_id=key[1],
            leader=new.leader,
            leader_epoch=new.leader_epoch,
            isr=new.isr,
            partition_epoch=new.partition_epoch,
        )

    def allocate_producer_ids(self, request: AllocateProducerIds) -> ProducerIdBlock:
        start = self._controller.next_producer_id
        self._controller.next_producer_id += 1000
        return ProducerIdBlock(start=start, length=1000)

    def elect_leaders(self, request: ElectLeaders) -> tuple[ElectedLeader, ...]:
        error = ErrorCode.ELECTION_NOT_NEEDED
        return tuple(
            ElectedLeader(topic=t, partition_id=p, error=error) for t, p in request.partitions
        )

    def create_partitions(self, request: CreatePartitions) -> Any:
        context = Context(next_offset=0, rng=self._controller.rng, cluster_id="")
        return self._committed(create_partitions(self._controller.image, request, context))

    def alter_reassignments(self, request: AlterReassignments) -> Any:
        image = self._controller.image
        return self._committed(alter_reassignments(image, request, eligible_brokers(image)))

    def create_acls(self, request: CreateAcls) -> Any:
        context = Context(next_offset=0, rng=self._controller.rng, cluster_id="")
        return self._committed(create_acls(self._controller.image, request, context))

    def _about_token(self, decide: Callable[..., Any], request: Any) -> Any:
        controller = self._controller
        context = Context(
            next_offset=0,
            rng=controller.rng,
            cluster_id="",
            wall_ms=controller.wall_ms,
            tokens=TokenRules(key=token_key(controller.token_secret)),
        )
        return self._committed(decide(controller.image, request, context))

    def _decided(self, decide: Callable[..., Any], request: Any) -> Any:
        return self._committed(decide(self._controller.image, request))

    def _committed(self, decision: Any) -> Any:
        if decision.records:
            self._controller.commit(*decision.records)
        return decision.reply

    _ANSWERS: ClassVar[dict[Any, Callable[..., Any]]] = {
        CREATE_TOPICS: create_topics,
        DELETE_TOPICS: delete_topics,
        CREATE_PARTITIONS: create_partitions,
        ALTER_REASSIGNMENTS: alter_reassignments,
        LIST_REASSIGNMENTS: lambda self, asked: self._decided(list_reassignments, asked),
        ELECT_LEADERS: elect_leaders,
        ALTER_CONFIGS: lambda self, asked: self._decided(alter_configs, asked),
        ALTER_CLIENT_QUOTAS: lambda self, asked: self._decided(alter_client_quotas, asked),
        ALTER_SCRAM_CREDENTIALS: lambda self, asked: self._decided(alter_scram_credentials, asked),
        CREATE_ACLS: create_acls,
        CREATE_DELEGATION_TOKEN: lambda self, asked: self._about_token(
            create_delegation_token, asked
        ),
        RENEW_DELEGATION_TOKEN: lambda self, asked: self._about_token(
            renew_delegation_token, asked
        ),
        EXPIRE_DELEGATION_TOKEN: lambda self, asked: self._about_token(
            expire_delegation_token, asked
        ),
        DELETE_ACLS: lambda self, asked: self._decided(delete_acls, asked),
        ALTER_PARTITION: alter_partition,
        ASSIGN_REPLICAS: DirectoriesSide.assign_replicas,
        ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
        UPDATE_FEATURES: lambda self, asked: (),
        UNREGISTER_BROKER: lambda self, asked: Rejected(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {asked.broker_id}"
        ),
        UNREGISTER_CONTROLLER: lambda self, asked: Rejected(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"no controller {asked.controller_id}"
        ),
    }

    async def describe_quorum(self) -> QuorumDescription | Rejected:
        await asyncio.sleep(0)
        if refused := self._refused():
            return refused
        state = ReplicaState(id=100, directory_id=bytes(16), log_end_offset=10)
        return QuorumDescription(
            leader_id=100,
            leader_epoch=3,
            high_watermark=10,
            voters=(state,),
            observers=(),
            nodes=((100, "127.0.0.1", 9093),),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureLinks:
    """A secure listener for brokers alone. connect: by broker id, the way to connect to it."""

    connect: Callable[[int], Connect]
    authenticate: Callable[[], Authentication] | None = None
    tls: TlsListener | None = None


@dataclasses.dataclass
class Broker:
    broker_id: int
    port: int
    manager: ReplicaManager
    server: KafkaServer


class Cluster(DirectoryHost):
    """Brokers on the running loop."""

    def __init__(
        self,
        directory: Path,
        *,
        count: int,
        config: BrokerConfig | None = None,
        directory_count: int = 1,
        disks: dict[int, Disk] | None = None,
        links: SecureLinks | None = None,
    ) -> None:
        self.links = links
        self.peer_ports: dict[int, int] = {}
        """Ports for other brokers, if there are links."""
        super().__init__(directory, directory_count=directory_count, disks=disks)
        self.config = config or QUICK
        self.controller = FakeController()
        self.brokers: dict[int, Broker] = {}
        self.ports: dict[int, int] = {}
        self.racks: dict[int, str] = {broker_id: f"rack-{broker_id}" for broker_id in range(1, 10)}
        self.unreachable: set[tuple[int, int]] = set()
        self._ids = list(range(1, count + 1))

    async def start(self) -> None:
        for broker_id in self._ids:
            await self.start_broker(broker_id)

    async def start_broker(self, broker_id: int, *, is_clean: bool = False) -> Broker:
        """Start (or start again) a broker and register it with a new epoch, unfenced."""

        def peer_address(peer: int) -> tuple[str, int] | None:
            if (broker_id, peer) in self.unreachable or peer not in self.ports:
                return None
            return ("127.0.0.1", self.peer_ports.get(peer, self.ports[peer]))

        side = BrokerSide(self.controller, broker_id)
        manager = ReplicaManager(
            broker_id=broker_id,
            data_directories=list(self.paths_of(broker_id)),
            config=self.config,
            controller=side,
            disk=self.disk_of(broker_id),
            peer_address=peer_address,
            rng=random.Random(broker_id),
            connect=connect_tcp if self.links is None else self.links.connect(broker_id),
            on_directory_failed=lambda: self._on_directory_failed(broker_id),
        )
        manager.load(is_clean, self.found_directories_of(broker_id, is_clean))
        services = Services(
            config=self.config,
            replicas=manager,
            controller=side,
            image=lambda: manager.registry.image,
            cluster_id=CLUSTER_ID,
            broker_id=broker_id,
        )
        server = KafkaServer(services)
        if self.links is not None:
            self.peer_ports[broker_id] = await server.bind(
                "127.0.0.1", 0, authenticate=self.links.authenticate, tls=self.links.tls
            )
        port = await self._listen(server)
        self.ports[broker_id] = port
        broker = Broker(broker_id, port, manager, server)
        self.brokers[broker_id] = broker
        manager.publish(None, self.controller.image)
        self.controller.managers[broker_id] = manager
        epoch = self.controller.image.end_offset + 1
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port)
        rack = self.racks.get(broker_id)
        log_dirs = tuple(sorted(d.id for d in manager.directories.online if any(d.id or b"")))
        self.controller.commit(
            RegisterBroker(
                broker_id, epoch, bytes(16), (endpoint,), rack, features=SUPPORTED,
                log_dirs=log_dirs,
            )
        )  # fmt: skip
        self.controller.commit(BrokerRegistrationChange(broker_id, epoch, is_fenced=False))
        manager.start()
        return broker

    async def _listen(self, server: KafkaServer) -> int:
        while True:
            try:
                return await server.start("127.0.0.1", next(_ports))
            except OSError:
                continue

    async def stop_broker(self, broker_id: int, *, fence: bool = True) -> None:
        broker = self.brokers.pop(broker_id)
        self.controller.managers.pop(broker_id)
        await broker.server.stop()
        await broker.manager.stop()
        if fence:
            self.fence(broker_id)

    async def crash_broker(self, broker_id: int) -> None:
        """End a broker without closing its logs or writing checkpoints; metadata unchanged."""
        broker = self.brokers.pop(broker_id)
        self.controller.managers.pop(broker_id)
        await broker.server.stop()
        await broker.manager.fetchers.stop()
        await broker.manager.isr.stop()
        await broker.manager.assignments.stop()
        broker.manager.isolation.stop()
        await broker.manager.cleaner.stop()
        await broker.manager.moves.halt()
        await broker.manager._background_jobs.stop()

    def fence(self, broker_id: int) -> None:
        """Fence a broker as a controller does: out of every ISR, its partitions led by others."""
        image = self.controller.image
        old = image.brokers[broker_id]
        records: list[Record] = [
            BrokerRegistrationChange(broker_id, old.broker_epoch, is_fenced=True)
        ]
        for topic in image.topics.values():
            for partition_id, partition in topic.partitions.items():
                if broker_id not in partition.isr or len(partition.isr) == 1:
                    continue
                isr = tuple(r for r in partition.isr if r != broker_id)
                leader = isr[0] if partition.leader == broker_id else None
                records.append(PartitionChange(topic.topic_id, partition_id, isr, leader))
        self.controller.commit(*records)

    def replica(self, broker_id: int, topic: str, partition_id: int = 0) -> Replica:
        found = self.brokers[broker_id].manager.registry.find_by_name(topic, partition_id)
        assert found is not None, f"broker {broker_id} has no {topic}-{partition_id}"
        return found

    async def stop(self) -> None:
        for broker_id in list(self.brokers):
            await self.stop_broker(broker_id, fence=False)


class Harness:
    """A Cluster on a loop in its own thread."""

    def __init__(
        self, directory: Path, *, count: int = 1, config: BrokerConfig | None = None, **more: Any
    ) -> None:
        """more: see Cluster."""
        self.loop = asyncio.new_event_loop()
        self.failures: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.failures.append(context))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.cluster = Cluster(directory, count=count, config=config, **more)
        self.run(self.cluster.start())

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{b.port}" for b in self.cluster.brokers.values())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def call(self, function: Callable[[], T]) -> T:
        """Run a plain function on the cluster's loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    def close(self) -> None:
        """Stop everything; fails if anything in the loop failed unseen."""
        try:
            self.run(self.cluster.stop())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE_S)
            self.loop.close()
        assert self.failures == []


def connection_of(harness: Harness, client: RawClient) -> Any:
    """The broker's end of the client's connection, once it is accepted."""
    port = client.sock.getsockname()[1]
    server = harness.cluster.brokers[1].server

    def found() -> list[Any]:
        return [c for c in list(server._connections) if c.peer.endswith(f" {port})")]

    eventually(lambda: bool(found()), "the connection is accepted")
    return found()[0]
