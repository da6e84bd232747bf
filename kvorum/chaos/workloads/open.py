"""Opens the workloads that an experiment lists: the topics that they need, and their threads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvorum.chaos.experiment_file.experiment import Configuration
from kvorum.chaos.experiment_file.workloads import (
    GroupPlan,
    KeyedPlan,
    ShareGroupPlan,
    TopicsPlan,
    TransactionalCopyPlan,
    TransactionsPlan,
    WorkloadKind,
)
from kvorum.chaos.history import HistoryWriter
from kvorum.chaos.workloads import keyed
from kvorum.chaos.workloads.groups import GroupMember, GroupWatch
from kvorum.chaos.workloads.keyed import KeyedLoad
from kvorum.chaos.workloads.share_drain import ShareDrain
from kvorum.chaos.workloads.share_groups import Progress, ShareMember, configure_group
from kvorum.chaos.workloads.topics import TopicsLoad
from kvorum.chaos.workloads.transactions import TransactionalCopier, TransactionsClient
from kvorum.chaos.workloads.worker import LoadThread


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeed:
    """A topic that a workload writes to. It is read in the final read."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


def topics_of(configuration: Configuration) -> list[TopicNeed]:
    """The topics of all workloads beside the append load's, to be created before they start."""
    found = []
    for plan in configuration.workloads:
        match plan:
            case KeyedPlan():
                found.append(
                    TopicNeed(
                        name=plan.topic, partitions=plan.partitions, config=keyed.TOPIC_CONFIG
                    )
                )
            case TransactionalCopyPlan():
                # A record keeps its partition number.
                found.append(TopicNeed(name=plan.topic, partitions=configuration.topic.partitions))
            case TransactionsPlan():
                found.append(TopicNeed(name=plan.topic, partitions=plan.partitions))
            case GroupPlan() | ShareGroupPlan() | TopicsPlan():
                pass
    return found


def configure_groups(configuration: Configuration, admin: Any) -> None:
    """Set the configs of the groups that need some, before their members join. admin: an
    administrator's client. Raises KvorumError."""
    for plan in configuration.workloads:
        if isinstance(plan, ShareGroupPlan):
            configure_group(admin, plan)


def open_workloads(
    configuration: Configuration, *, bootstrap: str, history: HistoryWriter
) -> list[LoadThread]:
    """The threads of every workload, not yet started. Random choices come from the seed."""
    return [
        worker
        for number, plan in enumerate(configuration.workloads)
        for worker in _open(number, plan, configuration, bootstrap, history)
    ]


def _open(
    at: int,
    plan: WorkloadKind,
    configuration: Configuration,
    bootstrap: str,
    history: HistoryWriter,
) -> Sequence[LoadThread]:
    def rng(number: int) -> random.Random:
        return random.Random(f"{configuration.seed}/workload-{at}/{number}")

    source = configuration.topic.name
    match plan:
        case KeyedPlan():
            return [KeyedLoad(bootstrap=bootstrap, plan=plan, history=history, rng=rng(0))]
        case TransactionalCopyPlan():
            return [
                TransactionalCopier(
                    bootstrap=bootstrap, plan=plan, source=source, number=number, history=history
                )
                for number in range(1, plan.members + 1)
            ]
        case TransactionsPlan():
            values = itertools.count()
            return [
                TransactionsClient(
                    bootstrap=bootstrap,
                    plan=plan,
                    number=number,
                    values=values,
                    history=history,
                    rng=rng(number),
                )
                for number in range(1, plan.clients + 1)
            ]
        case GroupPlan():
            members = [
                GroupMember(
                    bootstrap=bootstrap, plan=plan, topic=source, number=number, history=history
                )
                for number in range(1, plan.members + 1)
            ]
            return [*members, GroupWatch(bootstrap=bootstrap, plan=plan, history=history)]
        case ShareGroupPlan():
            return _share_group(plan, configuration, bootstrap, history, rng)
        case TopicsPlan():
            return [
                TopicsLoad(
                    bootstrap=bootstrap,
                    plan=plan,
                    replication_factor=configuration.topic.replication_factor,
                    number=number,
                    history=history,
                    rng=rng(number),
                )
                for number in range(1, plan.clients + 1)
            ]


def _share_group(
    plan: ShareGroupPlan,
    configuration: Configuration,
    bootstrap: str,
    history: HistoryWriter,
    rng: Callable[[int], random.Random],
) -> Sequence[LoadThread]:
    progress = Progress()
    members = [
        ShareMember(
            bootstrap=bootstrap,
            plan=plan,
            topic=configuration.topic.name,
            number=number,
            history=history,
            progress=progress,
            rng=rng(number),
        )
        for number in range(1, plan.members + 1)
    ]
    drain = ShareDrain(
        bootstrap=bootstrap,
        plan=plan,
        topic=configuration.topic.name,
        partitions=configuration.topic.partitions,
        history=history,
        progress=progress,
    )
    return [*members, drain]
