"""The parts of run.json that tell of a run before it begins: its load, configuration, versions."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from kvorum.chaos.experiment.scenario import Configuration
from kvorum.chaos.experiment.workloads import workload_name
from kvorum.chaos.live.systems.kvorum import kvorum_version
from kvorum.chaos.live.systems.opening import SystemChoice


def load_text(configuration: Configuration) -> str:
    """The load in one line."""
    others = [workload_name(plan) for plan in configuration.workloads]
    text = (
        f"load: {configuration.workload.records_per_second} records/s, acks=all, idempotent, "
        f"{configuration.topic.partitions} partitions"
    )
    return f"{text}; workloads: {', '.join(others)}" if others else text


def configuration_dict(configuration: Configuration) -> dict[str, Any]:
    """The configuration for run.json, its workloads as an experiment writes them."""
    workloads = [
        {workload_name(plan): dataclasses.asdict(plan)} for plan in configuration.workloads
    ]
    return {**dataclasses.asdict(configuration), "workloads": workloads}


def versions_of(choice: SystemChoice, toxiproxy: str) -> dict[str, str]:
    """The versions of the system, of Kvorum and of the parts of the lab, by name."""
    import confluent_kafka

    versions = {
        choice.name: choice.version,
        "kvorum": kvorum_version(),
        "python": platform.python_version(),
        "confluent-kafka": str(confluent_kafka.version()),
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "platform": platform.platform(terse=True),
    }
    return versions | ({"toxiproxy": toxiproxy} if toxiproxy else {})
