"""One partition on a few brokers, step by step: real replicas, logs, fetches and decisions.

Nothing happens by itself: the script orders each fetch, each decision of the controller, and each
delivery of the new metadata to a broker.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.fetch.fetch_sessions import FINAL_EPOCH
from kvorum.broker.fetch.follower_fetch_session import FollowerFetchSession
from kvorum.broker.fetch.leader_fetch import start_fetch
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.broker.quotas.replication_quota import UNLIMITED, ReplicationQuota
from kvorum.metadata.controller.decide import Context
from kvorum.metadata.controller.decide.brokers import fence, heartbeat, register
from kvorum.metadata.controller.decide.eligible_brokers import eligible_brokers
from kvorum.metadata.controller.decide.isr import alter_partition
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.image import EMPTY_IMAGE, RESOURCE_TOPIC
from kvorum.metadata.image.records import Config, Endpoint, FeatureLevel, PartitionChange, Topic
from kvorum.metadata.image.records import Partition as PartitionRecord
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    Heartbeat,
    RegisterBrokerRequest,
)
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records
from kvorum.storage.log.log import Log, LogConfig
from kvorum.wire.fetch_codec import FetchRequest, FetchTopic
from kvorum.wire.replica_fetch_codec import ReplicaAnswer, ReplicaFetchAnswer
from tests.test_storage.cleaning_steps import clean

TOPIC_ID = bytes(range(16))
KEY = (TOPIC_ID, 0)
DIRECTORY = "data/t-0"
LOG_CONFIG = LogConfig(keeps_recovery_state=True, compaction=CompactionConfig())
CONFIG = BrokerConfig(replica_lag_time_max_ms=1_000)
PRODUCE_VERSION = 13


class Node:
    """A broker. replica is None while it is down. start_checkpoint, recovery_point: the values in
    its files. tells_late: the follower tells its leader a new log start only after the
    checkpoint.
    """

    def __init__(self, world, node_id, seed):
        self.world, self.id, self.epoch, self.life = world, node_id, -1, 0
        self.start_checkpoint = self.recovery_point = 0
        self.tells_late = False
        self.disk = MemoryDisk(random.Random(seed + node_id))
        self.disk.make_dirs("data")
        self.disk.sync_dir(".")
        self.high_watermark = 0
        self.replica = None

    def start(self):
        self.life += 1
        self.peer_brokers = PeerBrokers()
        log = Log.open(
            self.disk, DIRECTORY, LOG_CONFIG, now_ms=0,
            recovery_point=self.recovery_point, log_start_offset=self.start_checkpoint,
        )  # fmt: skip
        core = Partition(
            broker_id=self.id, topic="t", topic_id=TOPIC_ID, partition_id=0,
            peer_brokers=self.peer_brokers,
            lag_time_max_ms=CONFIG.replica_lag_time_max_ms, min_insync_replicas=self.world.minimum,
            end_offset=log.end_offset,
            high_watermark=max(self.high_watermark, log.start_offset),
        )  # fmt: skip
        self.replica = Replica(
            core=core, log=log, config=resolve(CONFIG, {}), disk=self.disk, loop_turn=LoopTurn(),
            has_identity=True, lower_checkpoints=self.lower, on_first_file=lambda _: None,
            log_dir=None, on_failed=lambda *_: None,
        )  # fmt: skip
        self.session = FollowerFetchSession(
            config=CONFIG, leader_name=str, on_resume=lambda: None, quota=ReplicationQuota(0),
            clock=self.world, starts=SimpleNamespace(reportable_start=self.reportable_start),
        )  # fmt: skip

    def checkpoint(self):
        log = self.replica.log
        self.start_checkpoint, self.recovery_point = log.start_offset, log.durable_end_offset

    def lower(self, topic, partition_id, offset, start_offset):
        self.start_checkpoint = start_offset
        self.recovery_point = min(self.recovery_point, offset)

    def reportable_start(self, replica, on_saved):
        if not self.tells_late:
            self.start_checkpoint = replica.log.start_offset
        return min(self.start_checkpoint, replica.log.start_offset)

    def fetch_services(self):
        """The services that `start_fetch` needs."""

        def watch(watched):
            watched.replica = self.replica
            self.replica.watchers[watched] = None
            return self.replica

        nothing = lambda *_: None  # noqa: E731
        return SimpleNamespace(
            now_ms=self.world.monotonic_ms, configs=SimpleNamespace(broker=CONFIG),
            watch=watch,
            peer_brokers=self.peer_brokers,
            propose_expand=nothing, deadlines=SimpleNamespace(remove=nothing),
            throttle=SimpleNamespace(room=lambda *_: UNLIMITED, record=nothing),
            reread_verification=SimpleNamespace(suspect=nothing),
        )  # fmt: skip


class PartitionHarness:
    """Commands are the methods `do_<name>`, dashes as underscores."""

    def __init__(self):
        self.image, self.nodes, self.now_ms, self.minimum = EMPTY_IMAGE, {}, 0, 1
        self.proposal = self.answer = None
        self.lines, self._shown = [], {}

    def monotonic_ms(self):
        return self.now_ms

    wall_ms = monotonic_ms

    def run(self, command):
        """Run a command; the lines that it prints."""
        name, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        self.lines = []
        self._before = self._states()
        getattr(self, f"do_{name.replace('-', '_')}")(
            *(w for w in words if "=" not in w), **options
        )
        for node_id, state in self._states().items():
            if self._before.get(node_id) not in (None, state) and state:
                self.lines.append(f"{node_id}: {state}")
        return self.lines

    def _states(self):
        states = {}
        for node in self.nodes.values():
            core = node.replica and node.replica.core
            states[node.id] = core and (
                f"{core.role.value} epoch={core.leader_epoch} end={node.replica.log.end_offset} "
                f"hw={core.high_watermark}"
            )
        return states

    # --- the controller ----------------------------------------------------------------------

    def commit(self, *records):
        delta = Delta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(end_offset=self.image.end_offset + len(records), epoch=1)

    @property
    def _partition(self):
        return self.image.partition(TOPIC_ID, 0)

    def _say_partition(self):
        p = self._partition
        elr = f" elr={list(p.elr)}" if p.elr else ""
        self.lines.append(
            f"controller: leader={p.leader} epoch={p.leader_epoch} isr={list(p.isr)}{elr}"
        )

    def _register(self, node, before=-1):
        request = RegisterBrokerRequest(
            broker_id=node.id, cluster_id="", incarnation_id=bytes([node.id, node.life]) * 8,
            endpoints=(Endpoint("PLAINTEXT", "host", 1),), rack=None, broker_epoch_before=before,
            features=SUPPORTED,
        )  # fmt: skip
        context = Context(next_offset=self.image.end_offset, rng=random.Random(1), cluster_id="")
        decision = register(self.image, request, context, has_session=False, may_be_alive=False)
        self.commit(*decision.records)
        node.epoch = decision.reply.broker_epoch

    def do_cluster(self, count, min="1", seed="0"):
        self.__init__()
        self.minimum = int(min)
        self.commit(*(FeatureLevel(f.name, f.max_level) for f in SUPPORTED))
        for node_id in range(1, int(count) + 1):
            node = self.nodes[node_id] = Node(self, node_id, int(seed))
            node.start()
            self._register(node)
            self.do_unfence(node_id, say=False)
        ids = tuple(self.nodes)
        self.commit(
            Config(RESOURCE_TOPIC, "t", "min.insync.replicas", min),
            Topic("t", TOPIC_ID),
            PartitionRecord(TOPIC_ID, 0, ids, ids, 1),
        )
        self.do_publish()

    def do_lead(self, leader, isr):
        members = tuple(map(int, isr.split(",")))
        self.commit(PartitionChange(TOPIC_ID, 0, isr=members, leader=int(leader)))
        self._say_partition()

    def do_fence(self, broker):
        self.commit(*fence(self.image, int(broker)))
        self._say_partition()

    def do_unfence(self, broker, say=True):
        node = self.nodes[int(broker)]
        beat = Heartbeat(
            broker_id=node.id, broker_epoch=node.epoch, metadata_offset=self.image.end_offset
        )
        self.commit(*heartbeat(self.image, beat).records)
        if say:
            self._say_partition()

    def do_publish(self, *brokers):
        for node in [self.nodes[int(b)] for b in brokers] or self.nodes.values():
            if node.replica is None:
                continue
            node.peer_brokers.brokers = self.image.brokers
            image = self._partition
            if image.leader == node.id:
                node.session.remove(KEY)
                node.replica.become_leader(image, self.now_ms)
            elif node.replica.become_follower(image) and image.leader >= 0:
                node.session.add(KEY, node.replica)

    def do_propose(self, leader):
        core = self.nodes[int(leader)].replica.core
        self.proposal = core.propose_shrink(self.now_ms) or core.propose_expand()
        members = self.proposal and [member for member, _ in self.proposal.new_isr]
        self.lines.append(f"{leader}: proposes {members}")

    def do_decide(self):
        p, node = self.proposal, self.nodes[self._partition.leader]
        request = AlterPartition(broker_id=node.id, broker_epoch=node.epoch, proposals=(p,))
        decision = alter_partition(self.image, request, eligible_brokers(self.image))
        self.commit(*decision.records)
        self.answer = decision.reply[0]
        self.lines.append(f"controller: {self.answer.error.name}")
        self._say_partition()

    def do_answer(self, leader):
        node = self.nodes[int(leader)]
        node.replica.core.on_isr_answer(self.proposal, self.answer)
        node.replica.core.raise_high_watermark(self.now_ms)

    # --- brokers -----------------------------------------------------------------------------

    def do_produce(self, leader, *values, acks="-1"):
        """key:value, key: for a tombstone, or a value without a key."""
        replica = self.nodes[int(leader)].replica
        terms = ProduceTerms(int(acks), PRODUCE_VERSION, self.now_ms, self.now_ms)
        for value in values:
            key = value.partition(":")[0].encode() if ":" in value else None
            content = None if value.endswith(":") else value.encode()
            batch = build_batch([(key, content)], timestamp_ms=0)
            answer, required = replica.append(memoryview(batch), terms)
            error = ErrorCode(answer.error)
            what = error.name if error else f"{value} at {answer.base_offset}"
            waits = f", acknowledged at hw={required}" if required else ""
            self.lines.append(f"{leader}: {what}{waits}")

    def do_fetch(self, follower, *lost, epoch=None, offset=None):
        """epoch, offset: those of a delayed fetch from an earlier process of that broker."""
        node = self.nodes[int(follower)]
        leader = self.nodes[node.replica.core.leader]
        node.session.reset()
        asked = node.session.next_request()[0][0][1][0]
        if offset is not None:
            asked = asked._replace(fetch_offset=int(offset))
        told = []
        request = FetchRequest(
            node.id, node.epoch if epoch is None else int(epoch), 0, 0, 1 << 20, False, 0,
            FINAL_EPOCH, [FetchTopic("", TOPIC_ID, [asked])], [],
        )  # fmt: skip
        start_fetch(
            leader.fetch_services(), request, is_by_id=True,
            respond=lambda error, session, answers: told.extend(answers),
        )  # fmt: skip
        part = told[0][1]
        records = part.records.read() if part.records else b""
        said = f"{ErrorCode(part.error).name} " if part.error else ""
        said += f"diverging={part.diverging[1]}@{part.diverging[0]} " if part.diverging else ""
        self.lines.append(
            f"{node.id}->{leader.id} Fetch from={asked.fetch_offset}@{asked.last_fetched_epoch}: "
            f"{said}{_text(records)}hw={part.high_watermark}{' (lost)' if lost else ''}"
        )
        if not lost:
            answer = ReplicaAnswer(
                TOPIC_ID, 0, part.error, part.high_watermark, part.log_start_offset,
                part.diverging, 0, len(records),
            )  # fmt: skip
            node.session.take_answer(ReplicaFetchAnswer(0, 0, 0, [answer]), memoryview(records))

    def do_delete(self, leader, offset):
        """DeleteRecords; waiting fetches are answered."""
        self.nodes[int(leader)].replica.move_start(int(offset))

    def do_retire(self, broker):
        """Retention deletes the segments below the log start offset."""
        replica = self.nodes[int(broker)].replica
        replica.log.roll(now_ms=self.now_ms)
        replica.log.flush()
        replica.apply_retention(self.now_ms)

    def do_compact(self, broker):
        replica = self.nodes[int(broker)].replica
        replica.log.roll(now_ms=self.now_ms)
        replica.log.flush()
        clean(replica.log, now_ms=self.now_ms, high_watermark=replica.core.high_watermark)

    def do_crash(self, broker, *power):
        node = self.nodes[int(broker)]
        node.high_watermark = node.replica.core.high_watermark
        node.replica = None
        if power:
            node.disk.crash()
        else:
            node.disk.kill_process()

    def do_flush(self, broker):
        self.nodes[int(broker)].replica.log.flush()

    def do_restart(self, broker, *clean):
        node = self.nodes[int(broker)]
        node.start()
        self._register(node, before=node.epoch if clean else -1)
        self._say_partition()

    def do_wait(self, milliseconds):
        self.now_ms += int(milliseconds)

    def do_log(self):
        for node in self.nodes.values():
            if node.replica is None:
                continue
            log = node.replica.log
            start = log.start_offset
            data = log.read(start, bytes_max=1 << 20, end_offset=log.end_offset).read()
            words = _text(data).split()
            words.insert(node.replica.core.high_watermark - start, "|")
            files = f" from {start}, files from {log.segments.bases[0]}:" if start else ""
            self.lines.append(f"{node.id}{files} {' '.join(words)}")


def _text(data):
    found = []
    for position, header in iter_headers(data):
        for record in iter_records(data, position, header):
            value = f"{record.key.decode()}:" if record.value is None else record.value.decode()
            found.append(f"{value}@{header.leader_epoch} ")
    return "".join(found)
