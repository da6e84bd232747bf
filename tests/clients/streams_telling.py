"""One story of Streams groups in raw requests: its teller, and the members of its group."""

from __future__ import annotations

import time
from typing import Any

from tests.polling import eventually
from tests.test_broker.raw_client import RawClient

NOTHING: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
_MISSING = "Internal topics are missing: "
Tasks = dict[str, list[int]]


class Teller:
    """One story on one cluster. Names of its group and topics begin with the story's.

    settling_s: pause after a change of topics or configs. A coordinator of Kafka hears of them a
        moment after the rest of its broker, and no answer shows when.
    """

    def __init__(self, client: RawClient, name: str, settling_s: float) -> None:
        self.client = client
        self.settling_s = settling_s
        self.name = name
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(f"{self.name}: {text.replace(f'{self.name}-', '')}")

    def topic(self, name: str, partitions: int) -> str:
        """Create a topic, and wait until the broker knows it."""
        full = f"{self.name}-{name}"
        row = {
            "name": full, "num_partitions": partitions, "replication_factor": 1,
            "assignments": [], "configs": [],
        }  # fmt: skip
        values = {"topics": [row], "timeout": 10_000, "validate_only": False}
        self.client.call("create_topics", 7, values)
        self.await_topic(name, partitions)
        return full

    def await_topic(self, name: str, partitions: int) -> None:
        def is_there() -> bool:
            asked = {
                "topics": [{"topic_id": None, "name": f"{self.name}-{name}"}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            }
            [topic] = self.client.call("metadata", 12, asked).topics
            return len(topic.partitions) == partitions and all(
                int(p.error_code) == 0 for p in topic.partitions
            )

        eventually(is_there, f"{name} with {partitions} partitions")
        time.sleep(self.settling_s)

    def part(self, name: str = "0", *sources: str, **more: Any) -> dict[str, Any]:
        """A subtopology; names of topics are without the story's."""

        def full(names: Any) -> list[str]:
            return [f"{self.name}-{one}" for one in names]

        def infos(rows: dict[str, int]) -> list[dict[str, Any]]:
            return [
                {
                    "name": f"{self.name}-{one}", "partitions": count, "replication_factor": 0,
                    "topic_configs": [],
                }
                for one, count in rows.items()
            ]  # fmt: skip

        return {
            "subtopology_id": name,
            "source_topics": full(sources),
            "source_topic_regex": more.get("regex", []),
            "state_changelog_topics": infos(more.get("changelogs", {})),
            "repartition_sink_topics": full(more.get("sinks", ())),
            "repartition_source_topics": infos(more.get("repartitions", {})),
            "copartition_groups": [
                {
                    "source_topics": sources, "source_topic_regex": [],
                    "repartition_source_topics": repartitions,
                }
                for sources, repartitions in more.get("together", ())
            ],
        }  # fmt: skip

    def configure(self, **values: str) -> None:
        """Set configs of the group."""
        rows = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value}
            for name, value in values.items()
        ]
        resource = {"resource_type": 32, "resource_name": f"{self.name}-group", "configs": rows}
        asked = {"resources": [resource], "validate_only": False}
        answer = self.client.call("incremental_alter_configs", 1, asked)
        assert int(answer.responses[0].error_code) == 0, answer
        time.sleep(self.settling_s)

    def describe(self, *, with_topics: bool = True) -> None:
        asked = {
            "group_ids": [f"{self.name}-group"], "include_authorized_operations": False,
            "include_topology_description": True,
        }  # fmt: skip
        [row] = self.client.call("streams_group_describe", 1, asked).groups
        topics = []
        for part in row.topology.subtopologies if row.topology and with_topics else ():
            named = {
                one.name: one.partitions
                for one in (*part.state_changelog_topics, *part.repartition_source_topics)
            }
            topics.append((part.subtopology_id, list(part.source_topics), named))
        members = sorted(
            (
                *(m.member_id, m.member_epoch, m.topology_epoch),
                *(tasks(m.assignment.active_tasks), tasks(m.target_assignment.active_tasks)),
                [(one.partition, one.offset) for one in m.task_offsets],
            )
            for m in row.members
        )
        self.say(
            f"describe: {int(row.error_code)} {row.group_state} epochs {row.group_epoch} "
            f"{row.assignment_epoch} {row.assignor_name} {topics} {members}"
        )

    def code_of(self, what: str, answer: Any) -> None:
        self.say(f"{what}: {int(answer.error_code)}")

    def commit(self, what: str, member: str, epoch: int, topic: str, *partitions: int) -> None:
        rows = [
            {
                "partition_index": partition, "committed_offset": 1,
                "committed_leader_epoch": -1, "committed_metadata": "",
            }
            for partition in partitions
        ]  # fmt: skip
        asked = {
            "group_id": f"{self.name}-group", "generation_id_or_member_epoch": epoch,
            "member_id": member, "group_instance_id": None,
            "topics": [{"name": f"{self.name}-{topic}", "partitions": rows}],
        }  # fmt: skip
        answer = self.client.call("offset_commit", 9, asked)
        found = [int(row.error_code) for row in answer.topics[0].partitions]
        self.say(f"{what}: {found}")


class Member:
    """A member of the story's group. It takes up what it is told, unless `is_slow`."""

    def __init__(self, teller: Teller, name: str, *parts: Any, **more: Any) -> None:
        self.teller = teller
        self.name = name
        self.topology = {"epoch": more.pop("topology_epoch", 0), "subtopologies": list(parts)}
        self.more = more
        self.epoch = 0
        self.owned: dict[str, Any] = dict(NOTHING)
        self.told: dict[str, Any] = dict(NOTHING)
        self.endpoint_epoch = 0
        self.is_slow = False

    def join(self, **more: Any) -> Any:
        self.epoch, self.owned = 0, dict(NOTHING)
        values = {
            "topology": self.topology, "rebalance_timeout": 60_000,
            "process_id": f"process-{self.name}", **NOTHING, **self.more, **more,
        }  # fmt: skip
        return self._send("join", values)

    def beat(self, what: str = "beat", **more: Any) -> Any:
        return self._send(what, {**self.owned, **more})

    def leave(self, epoch: int = -1, **more: Any) -> Any:
        self.epoch = epoch
        return self._send("leave", more)

    def own(self) -> None:
        self.owned = dict(self.told)

    def _send(self, what: str, values: dict[str, Any]) -> Any:
        version = values.pop("version", 1)
        asked = {
            "group_id": f"{self.teller.name}-group", "member_id": self.name,
            "member_epoch": self.epoch, "endpoint_information_epoch": self.endpoint_epoch,
            "instance_id": self.more.get("instance_id"), "rack_id": None,
            "rebalance_timeout": -1, "topology": None, "active_tasks": None,
            "standby_tasks": None, "warmup_tasks": None, "process_id": None,
            "user_endpoint": None, "client_tags": None, "task_offsets": None,
            "task_end_offsets": None, "shutdown_application": False, **values,
        }  # fmt: skip
        answer = self.teller.client.call("streams_group_heartbeat", version, asked)
        self._tell(what, answer)
        if int(answer.error_code) == 0 and self.epoch >= 0:
            self.epoch = answer.member_epoch
            self.endpoint_epoch = answer.endpoint_information_epoch
            if answer.active_tasks is not None:
                self.told = {
                    f"{role}_tasks": rows_of(getattr(answer, f"{role}_tasks"))
                    for role in ("active", "standby", "warmup")
                }
            if not self.is_slow:
                self.own()
        return answer

    def _tell(self, what: str, answer: Any) -> None:
        line = f"{self.name} {what}: {int(answer.error_code)}"
        if answer.error_message:
            line += f" {answer.error_message!r}"
        if int(answer.error_code) == 0:
            line += f" epoch {answer.member_epoch}"
            for status in answer.status or ():
                detail = status.status_detail
                if detail.startswith(_MISSING):
                    # In Kafka in the order of a hash table.
                    detail = _MISSING + ", ".join(sorted(detail[len(_MISSING) :].split(", ")))
                line += f" [{status.status_code} {detail}]"
            for role in ("active", "standby"):
                found = getattr(answer, f"{role}_tasks")
                if found:
                    line += f" {role} {tasks(found)}"
            if answer.active_tasks is not None and not answer.active_tasks:
                line += " no active tasks"
            for row in answer.partitions_by_user_endpoint or ():
                where = f"{row.user_endpoint.host}:{row.user_endpoint.port}"
                found = [(one.topic, list(one.partitions)) for one in row.active_partitions]
                line += f" {where} {found}"
        self.teller.say(line)


def rows_of(rows: Any) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": row.subtopology_id, "partitions": list(row.partitions)} for row in rows
    ]


def tasks(rows: Any) -> Tasks:
    return {row.subtopology_id: sorted(row.partitions) for row in rows}
