"""All loads of one run: the append load with its reader, topic creations, and other workloads."""

from __future__ import annotations

import dataclasses

from kvorum.chaos.experiment_file.experiment import Configuration
from kvorum.chaos.experiment_file.workloads import WorkloadKind
from kvorum.chaos.history import HistoryWriter
from kvorum.chaos.live.host.processes import wait_until
from kvorum.chaos.workloads.clients import open_admin
from kvorum.chaos.workloads.consume import ConsumeLoad, end_offsets, final_read
from kvorum.chaos.workloads.create_topics import CreateTopicsLoad
from kvorum.chaos.workloads.open import (
    TopicNeed,
    configure_groups,
    open_workloads,
    topics_of,
)
from kvorum.chaos.workloads.produce import ProduceLoad
from kvorum.runtime.errors import KvorumError

_TOPIC_TIMEOUT_S = 20.0
_THREAD_TIMEOUT_MS = 15_000
_WORKER_TIMEOUT_S = 40.0


def prefixed(configuration: Configuration, prefix: str) -> Configuration:
    """The configuration with a prefix before the names of all topics and groups."""

    def rename(plan: WorkloadKind) -> WorkloadKind:
        changes = {
            field.name: prefix + getattr(plan, field.name)
            for field in dataclasses.fields(plan)
            if field.name in ("topic", "group", "prefix")
        }
        return dataclasses.replace(plan, **changes)

    topic = dataclasses.replace(configuration.topic, name=prefix + configuration.topic.name)
    workloads = tuple(rename(plan) for plan in configuration.workloads)
    return dataclasses.replace(configuration, topic=topic, workloads=workloads)


class Loads:
    """The threads of all loads. `start` creates their topics; `stop` or `abandon` ends them."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        bootstrap: str,
        history: HistoryWriter,
        admin: str = "",
    ) -> None:
        """admin: the bootstrap addresses, with the login of the user who creates the topics; empty
        if the user of `bootstrap` does."""
        self._configuration = configuration
        self._bootstrap = bootstrap
        self._admin = admin or bootstrap
        self._history = history
        topic, workload = configuration.topic, configuration.workload
        self.produce = ProduceLoad(
            bootstrap=bootstrap,
            topic=topic.name,
            partitions=topic.partitions,
            plan=workload,
            history=history,
        )
        self.consumer = ConsumeLoad(
            bootstrap=bootstrap,
            topic=topic.name,
            partitions=topic.partitions,
            history=history,
        )
        self._creations: CreateTopicsLoad | None = None
        if workload.topic_creations_per_second:
            self._creations = CreateTopicsLoad(
                prefix=f"{topic.name}-side",
                replication_factor=topic.replication_factor,
                per_second=workload.topic_creations_per_second,
                bootstrap=bootstrap,
                history=history,
            )
        self._workers = open_workloads(configuration, bootstrap=bootstrap, history=history)
        self._is_started = False

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that `create_topics` creates."""
        return tuple(need.name for need in self._needs())

    @property
    def compacted_topics(self) -> tuple[str, ...]:
        """The topics with cleanup.policy=compact."""
        needs = self._needs()
        return tuple(need.name for need in needs if need.config.get("cleanup.policy") == "compact")

    def create_topics(self) -> None:
        """Create the topics of all loads, and set the configs of their groups. Raises KvorumError
        if one cannot be created."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        plan = self._configuration.topic
        topics = [
            NewTopic(
                need.name,
                num_partitions=need.partitions,
                replication_factor=plan.replication_factor,
                config={"min.insync.replicas": str(plan.min_insync_replicas), **need.config},
            )
            for need in self._needs()
        ]
        admin = open_admin(self._admin)
        answers = admin.create_topics(topics, request_timeout=_TOPIC_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                raise KvorumError(f"topic {name} cannot be created: {error}") from error
        configure_groups(self._configuration, admin)

    def start(self) -> None:
        self._is_started = True
        self.produce.start()
        self.consumer.start()
        if self._creations is not None:
            self._creations.start()
        for worker in self._workers:
            worker.start()

    def await_flow(self, *, timeout_ms: int) -> None:
        """Wait until every partition has acknowledged a record. Raises NotReached.

        The warm-up begins then: a system that has just started may need seconds for its first
        records, which no fault explains.
        """
        partitions = self._configuration.topic.partitions
        wait_until(
            lambda: (
                self.produce.failure is not None
                or len(self.produce.partitions_written) == partitions
            ),
            timeout_ms=timeout_ms,
            what="every partition has acknowledged a record",
        )

    def check(self) -> None:
        """Raise KvorumError if a load ended early: without it the run proves nothing."""
        failures = {"the producer": self.produce.failure, "the consumer": self.consumer.failure}
        failures |= {worker.name: worker.failure for worker in self._workers}
        for name, failure in failures.items():
            if failure is not None:
                raise KvorumError(f"{name} ended early: {failure}") from failure

    def stop(self) -> None:
        """Write no more; returns when every operation has its outcome. The consumer reads on."""
        if self._creations is not None:
            self._creations.stop()
        self.produce.stop()
        for worker in self._workers:
            worker.ask_to_stop()
        for worker in self._workers:
            worker.stop(timeout_s=_WORKER_TIMEOUT_S)

    def abandon(self) -> None:
        """End everything soon; outcomes stay unknown. For runs that are broken off."""
        if not self._is_started:
            return
        self.produce.abandon()
        if self._creations is not None:
            self._creations.stop()
        for worker in self._workers:
            worker.abandon()
        self.stop_consumer()
        for worker in self._workers:
            worker.stop(timeout_s=_THREAD_TIMEOUT_MS / 1000)

    def stop_consumer(self) -> None:
        self.consumer.stop(timeout_ms=_THREAD_TIMEOUT_MS)

    def catch_up(self, *, timeout_ms: int) -> None:
        """Wait until the consumer is at the end, so that a record that it never gets is the
        cluster's fault. Raises NotReached."""
        topic = self._configuration.topic
        ends = end_offsets(
            bootstrap=self._bootstrap,
            topic=topic.name,
            partitions=topic.partitions,
            timeout_ms=timeout_ms,
        )
        offsets = self.consumer.next_offsets
        wait_until(
            lambda: all(offsets[number] >= end for number, end in ends.items()),
            timeout_ms=timeout_ms,
            what="the consumer reaches the end of every partition",
        )

    def final_read(self, *, timeout_ms: int) -> bool:
        """Read every topic of the loads from start to end, into the history; False if the read of
        one is incomplete."""
        is_complete = True
        for need in self._needs():
            is_complete &= final_read(
                bootstrap=self._bootstrap,
                topic=need.name,
                partitions=need.partitions,
                history=self._history,
                timeout_ms=timeout_ms,
            )
        return is_complete

    def _needs(self) -> list[TopicNeed]:
        topic = self._configuration.topic
        own = TopicNeed(name=topic.name, partitions=topic.partitions)
        return [own, *topics_of(self._configuration)]
