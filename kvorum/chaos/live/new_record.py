"""The record of a run that begins: its experiment, configuration and versions."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from kvorum.chaos.experiment_file.experiment import Configuration, Experiment
from kvorum.chaos.experiment_file.workloads import workload_name
from kvorum.chaos.live.endings import UNENDED
from kvorum.chaos.live.systems.kvorum import kvorum_version
from kvorum.chaos.live.systems.opening import SystemChoice
from kvorum.chaos.run_record import ATTACHED, FRESH, RunRecord, RunSystem
from kvorum.client.security import NONE
from kvorum.runtime.clock import wall_ms


def new_record(experiment: Experiment, choice: SystemChoice, rerun: str) -> RunRecord:
    """The record before the first event. Its error stands if the run is killed."""
    configuration = experiment.configuration
    now_ms = wall_ms()
    return RunRecord(
        title=experiment.title,
        description=experiment.description,
        tags=experiment.tags,
        seed=configuration.seed,
        cluster=FRESH if choice.attached is None else ATTACHED,
        rerun=rerun,
        configuration=_configuration(configuration),
        steady_state_title=experiment.steady_state_title,
        started_wall_ms=now_ms,
        steady_state_before=(),
        steady_state_after=(),
        probes=(),
        steps=(),
        is_converged=False,
        is_final_read_complete=False,
        died_unasked=(),
        notes=(),
        error=UNENDED,
        system=RunSystem(name=choice.name, version=choice.version),
        is_secure=configuration.is_secure or choice.security != NONE,
        versions={},
        ended_wall_ms=now_ms,
    )


def load_text(configuration: Configuration) -> str:
    """The load in one line."""
    others = [workload_name(plan) for plan in configuration.workloads]
    text = (
        f"load: {configuration.workload.records_per_second} records/s, acks=all, idempotent, "
        f"{configuration.topic.partitions} partitions"
    )
    return f"{text}; workloads: {', '.join(others)}" if others else text


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


def _configuration(configuration: Configuration) -> dict[str, Any]:
    """The configuration for run.json, its workloads as an experiment writes them."""
    workloads = [
        {workload_name(plan): dataclasses.asdict(plan)} for plan in configuration.workloads
    ]
    return {**dataclasses.asdict(configuration), "workloads": workloads}
