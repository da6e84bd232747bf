"""Images and controllers made for tests."""

from __future__ import annotations

import random

from metadata.controller import Controller, ControllerConfig
from metadata.records import Endpoint
from metadata.requests import (
    CreateTopics,
    Heartbeat,
    NewTopic,
    RegisterBrokerRequest,
)

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"


class World:
    """An active controller whose decisions are committed at once."""

    def __init__(self, brokers=(101, 102, 103), *, seed=0, config=None):
        self.now_ms = 0
        self.controller = Controller(
            config or ControllerConfig(), cluster_id=CLUSTER_ID, rng=random.Random(seed)
        )
        self.controller.claim(1, 0, 0)
        self.records = []
        self.epochs = {}
        for broker_id in brokers:
            self.join(broker_id)

    @property
    def image(self):
        return self.controller.committed

    def ask(self, request):
        decision = self.controller.decide(request, self.now_ms)
        self.records += decision.records
        self.controller.note_committed(self.controller.speculative)
        return decision.reply

    def register(self, broker_id, incarnation=1, cluster_id=CLUSTER_ID):
        return self.ask(
            RegisterBrokerRequest(
                broker_id=broker_id,
                cluster_id=cluster_id,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),),
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
        while (found := self.controller.expire_session(at_ms)) is not None:
            broker_id, _, records = found
            fenced.append(broker_id)
            self.records += records
            self.controller.note_committed(self.controller.speculative)
        return fenced

    def partition(self, topic="t", partition_id=0):
        return self.image.topic(topic).partitions[partition_id]
