"""A cluster reached through a controller (gRPC)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvorum.client.config_hints import with_hint
from kvorum.client.controllers import BlockingControllerClient
from kvorum.client.current import current_security
from kvorum.client.failures import Row, check, no_topic, refusal
from kvorum.metadata.controller.decide.eligible_brokers import min_isr_of
from kvorum.metadata.image.features import FEATURES_BEFORE_KIP_584, level_of
from kvorum.metadata.image.image import BrokerImage, ClusterImage, ControllerImage, TopicImage
from kvorum.metadata.inspect.history import image_of
from kvorum.metadata.requests.controller_requests import (
    CreateTopics,
    DeleteTopics,
    FeatureUpdate,
    NewTopic,
    TopicReference,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UpdateFeatures,
    UpdateKind,
)
from kvorum.metadata.rpc.calls import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
    ControllerCall,
    Reply,
    Request,
)
from kvorum.rpc import admin_pb2 as pb
from kvorum.runtime.errors import Rejected
from kvorum.runtime.ids import UUID_ZERO, uuid_text


class ControllerBackend:
    """A cluster through its controllers. The active one gets changes and reads; without one, the
    reachable controller with the highest high watermark answers reads, and stderr says so."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        self.client = BlockingControllerClient(addresses, timeout_s)

    def request(
        self, call: ControllerCall[Request, Reply], request: Request, subject: str
    ) -> Reply:
        """The active controller's reply. Raises CommandFailed, which names the subject, if it
        refuses."""
        reply = self.client.request(call, request)
        if isinstance(reply, Rejected):
            raise refusal(reply.code, reply.message, subject)
        return reply

    def topics(self, names: list[str] | None) -> list[Row]:
        return [_topic_row(topic) for topic in self._found(names)]

    def describe_topics(self, names: list[str] | None) -> list[Row]:
        rows = []
        for topic in self._found(names):
            row = _topic_row(topic)
            for partition in row["partitions"]:
                known = topic.partitions[partition["partition"]]
                partition["elr"] = list(known.elr)
                partition["last_known_elr"] = list(known.last_known_elr)
            rows.append(row)
        return rows

    def _found(self, names: list[str] | None) -> list[TopicImage]:
        image = self._image()
        found: list[TopicImage] = []
        for name in sorted(image.topic_ids) if names is None else names:
            topic = image.topic(name)
            if topic is None:
                raise no_topic(name)
            found.append(topic)
        return found

    def create_topic(
        self,
        name: str,
        partitions: int,
        factor: int,
        configs: dict[str, str],
        *,
        assignment: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> Row:
        topic = NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=tuple(tuple(replicas) for replicas in assignment),
            configs=tuple(configs.items()),
        )
        request = CreateTopics(topics=(topic,), validate_only=validate_only)
        (made,) = self.request(CREATE_TOPICS, request, f"topic {name}")
        check(made.error, with_hint(made.message), f"topic {name}")
        return {
            "topic": name,
            "topic_id": uuid_text(made.topic_id),
            "partitions": made.num_partitions,
            "replication_factor": made.replication_factor,
        }

    def delete_topics(self, names: list[str]) -> list[Row]:
        request = DeleteTopics(topics=tuple(TopicReference(name=name) for name in names))
        return [
            {"topic": gone.name, "error": gone.error.name, "message": gone.message}
            for gone in self.request(DELETE_TOPICS, request, "delete topics")
        ]

    def brokers(self) -> list[Row]:
        protocol = current_security().protocol
        rows = []
        for _, broker in sorted(self._image().brokers.items()):
            endpoint = broker.client_endpoint(protocol)
            rows.append(
                {
                    "broker_id": broker.broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": broker.rack,
                    "is_fenced": broker.is_fenced,
                }
            )
        return rows

    def min_isr(self, names: Sequence[str]) -> dict[str, int]:
        image = self._image()
        return {name: min_isr_of(image, name) for name in names if image.topic(name) is not None}

    def unregister_broker(self, broker_id: int) -> None:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        self.request(UNREGISTER_BROKER, request, f"broker {broker_id}")

    def unregister_controller(self, controller_id: int) -> None:
        request = UnregisterControllerRequest(controller_id=controller_id)
        self.request(UNREGISTER_CONTROLLER, request, f"controller {controller_id}")

    def features(self) -> list[Row]:
        image = self._image()
        nodes: list[BrokerImage | ControllerImage] = []
        nodes += image.brokers.values()
        nodes += image.controllers.values()
        ranges = [{f.name: f for f in node.features or FEATURES_BEFORE_KIP_584} for node in nodes]
        rows = []
        for name in sorted({*image.features, *(name for known in ranges for name in known)}):
            of_all = [known[name] for known in ranges if name in known]
            is_known = bool(of_all) and len(of_all) == len(ranges)
            rows.append(
                {
                    "feature": name,
                    "min_level": max(f.min_level for f in of_all) if is_known else None,
                    "max_level": min(f.max_level for f in of_all) if is_known else None,
                    "finalized_level": level_of(image.features, name),
                }
            )
        return rows

    def update_features(self, levels: dict[str, int], kind: int, dry_run: bool) -> list[Row]:
        updates = tuple(
            FeatureUpdate(name=name, max_level=level, kind=UpdateKind(kind))
            for name, level in levels.items()
        )
        request = UpdateFeatures(updates=updates, validate_only=dry_run)
        return [
            {
                "feature": row.name,
                "level": levels[row.name],
                "error": row.error.name,
                "message": row.message,
            }
            for row in self.request(UPDATE_FEATURES, request, "features")
        ]

    def quorum(self) -> Row:
        reply = self.client.describe()
        return {
            "cluster_id": reply.cluster_id,
            "leader_id": reply.leader_id,
            "leader_epoch": reply.leader_epoch,
            "high_watermark": reply.high_watermark,
            "voters": [_replica(r) for r in reply.voters],
            "observers": [_replica(r) for r in reply.observers],
            "nodes": [{"node_id": n.node_id, "host": n.host, "port": n.port} for n in reply.nodes],
        }

    def _image(self) -> ClusterImage:
        return image_of(self.client.read_metadata_log())


def _topic_row(topic: TopicImage) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "partitions": [
            {
                "partition": partition_id,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
            }
            for partition_id, partition in sorted(topic.partitions.items())
        ],
    }


def _replica(replica: pb.QuorumReplica) -> Row:
    return {
        "node_id": replica.node_id,
        "directory_id": uuid_text(replica.directory_id or UUID_ZERO),
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp": replica.last_caught_up_timestamp_ms,
        "clock_ahead_ms": replica.clock_ahead_ms if replica.HasField("clock_ahead_ms") else None,
    }
