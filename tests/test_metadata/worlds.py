"""Images and controllers made for tests."""

from __future__ import annotations

import random

from kvorum.metadata.controller.core.controller import Controller, ControllerConfig
from kvorum.metadata.controller.decide.elr_clearing import with_elr_cleared
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import (
    AlterPartition,
    AlterReassignments,
    CreateTopics,
    DeleteTopics,
    Heartbeat,
    IsrProposal,
    NewTopic,
    Reassignment,
    RegisterBrokerRequest,
    TopicReference,
)

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"


class World:
    """An active controller whose decisions are committed at once."""

    def __init__(self, brokers=(101, 102, 103), *, seed=0, config=None, supported=SUPPORTED):
        self.now_ms = self.wall_ms = 0
        self.controller = Controller(
            config or ControllerConfig(),
            cluster_id=CLUSTER_ID,
            rng=random.Random(seed),
            supported_features=supported,
        )
        self.controller.claim(1, 0, 0)
        self.records = list(self.controller.begin())
        self.controller.note_committed(self.controller.speculative)
        self.epochs = {}
        for broker_id in brokers:
            self.join(broker_id)

    @property
    def image(self):
        return self.controller.committed

    def ask(self, request):
        decision = self.controller.decide(request, self.now_ms, wall_ms=self.wall_ms)
        self.records += decision.records
        self.controller.note_committed(self.controller.speculative)
        return decision.reply

    def register(self, broker_id, incarnation=1, cluster_id=CLUSTER_ID, **fields):
        return self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id,
                cluster_id=cluster_id,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),),
                features=SUPPORTED,
                **fields,
            )
        )

    def heartbeat(self, broker_id, **fields):
        fields.setdefault("metadata_offset", self.image.end_offset)
        return self.ask(
            Heartbeat(broker_id=broker_id, broker_epoch=self.epochs[broker_id], **fields)
        )

    def join(self, broker_id, incarnation=1):
        self.epochs[broker_id] = self.register(broker_id, incarnation).broker_epoch
        return self.heartbeat(broker_id)

    def create(self, name, partitions=1, factor=3, **fields):
        topic = NewTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)
        return self.ask(CreateTopics(topics=(topic,)))[0]

    def expire(self, at_ms):
        self.now_ms = at_ms
        fenced = []
        while (found := self.controller.fence_next(at_ms)) is not None:
            causes, records = found
            fenced += causes
            self.records += records
            self.controller.note_committed(self.controller.speculative)
        return fenced

    def expire_alone(self, broker_id, at_ms):
        """End the session of one broker; the others live."""
        self.now_ms = at_ms
        for other in self.epochs:
            if other != broker_id:
                self.heartbeat(other)
        return self.expire(at_ms)

    def partition(self, topic="t", partition_id=0):
        return self.image.topic(topic).partitions[partition_id]

    def fence(self, broker_id):
        """Fence the broker by a heartbeat in which it asks for that (want_fence)."""
        return self.heartbeat(broker_id, want_fence=True)

    def restart(self, broker_id, *, is_clean):
        """Restart a fenced broker: a new process registers and catches up."""
        before = self.epochs[broker_id] if is_clean else -1
        incarnation = 2 + self.image.end_offset % 250
        reply = self.register(broker_id, incarnation, broker_epoch_before=before)
        self.epochs[broker_id] = reply.broker_epoch
        return self.heartbeat(broker_id)

    def proposal(self, isr, topic="t", partition_id=0, **changes):
        """The leader's proposal of an ISR, with the epochs of the present image."""
        partition = self.partition(topic, partition_id)
        fields = {
            "topic_id": self.image.topic(topic).topic_id,
            "partition_id": partition_id,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr": tuple((b, self.epochs.get(b, -1)) for b in isr),
        }
        return IsrProposal(**{**fields, **changes})

    def propose(self, isr, topic="t", partition_id=0, *, sender=None, **changes):
        """Have the leader propose an ISR; its answer."""
        sender = self.partition(topic, partition_id).leader if sender is None else sender
        proposals = (self.proposal(isr, topic, partition_id, **changes),)
        reply = self.ask(
            AlterPartition(broker_id=sender, broker_epoch=self.epochs[sender], proposals=proposals)
        )
        return reply[0] if isinstance(reply, tuple) else reply

    def reassign(self, replicas, topic="t", partition_id=0, **fields):
        """Begin (or with None cancel) a reassignment; the answer for that partition."""
        wanted = Reassignment(
            topic=topic,
            partition_id=partition_id,
            replicas=None if replicas is None else tuple(replicas),
        )
        return self.ask(AlterReassignments(reassignments=(wanted,), **fields))[0]

    def delete(self, name):
        return self.ask(DeleteTopics(topics=(TopicReference(name=name),)))[0]

    def commit(self, *records):
        """Commit records without a decision about a request."""
        delta = Delta(self.image)
        delta.replay_all(records)
        image = delta.apply(end_offset=self.image.end_offset + len(records), epoch=1)
        self.records += records
        self.controller.speculative = image
        self.controller.note_committed(image)

    def commit_decided(self, *records):
        """Like `commit`, with the records that the controller adds to any decision."""
        self.commit(*with_elr_cleared(self.image, records))


def busy_world(seed):
    rng = random.Random(seed)
    world = World(seed=seed)
    for step in range(30):
        match rng.randrange(4):
            case 0:
                world.create(f"t{step}", partitions=rng.randint(1, 4), factor=rng.randint(1, 3))
            case 1 if world.image.topic_ids:
                name = rng.choice(sorted(world.image.topic_ids))
                world.ask(DeleteTopics(topics=(TopicReference(name=name),)))
            case 2:
                broker_id = rng.choice((101, 102, 103))
                world.controller.sessions.stream_broke(
                    broker_id, world.epochs[broker_id], world.now_ms
                )
                world.expire(world.now_ms + 100)
            case _:
                broker_id = rng.choice((101, 102, 103))
                world.controller.sessions.stream_broke(
                    broker_id, world.epochs[broker_id], world.now_ms
                )
                world.join(broker_id, incarnation=step + 2)
                world.now_ms += 10
    return world
