"""The contents of each page, as plain dictionaries, made from the newest readings. Pure.

Rows are dictionaries by key, so that a merge patch names only the rows that changed; `order` gives
their order. A page gets at most the rows that it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kvorum.console.core.news import News
from kvorum.console.core.patch import Document, without_nulls
from kvorum.console.core.replica_log import Seen
from kvorum.console.core.replica_rows import metadata_rows, replica_rows
from kvorum.console.core.sample import QuorumNode, Sample
from kvorum.console.core.share_figures import NO_PAGES, ShareFigures
from kvorum.console.core.topics_summary import IS_INTERNAL, Summaries, TopicSummary, state_of
from kvorum.metadata.image.image import BrokerImage, ClusterImage, PartitionImage
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.ids import uuid_text
from kvorum.runtime.text import address_text, whole_number

ROWS_DEFAULT = 50
ROWS_MAX = 200
LOGS_MAX = 8
"""Partitions whose logs one page shows."""
REPLICATION = "replication"
SILENT_AFTER_MS = 3_000
"""An observer that has not fetched for this long is shown as silent; it fetches several times a
second."""

Parameters = Mapping[str, str]


class BadParameter(KvorumError):
    """A parameter of a page that means nothing; the message names it and its value."""


class NotThere(KvorumError):
    """The thing that was asked for does not exist."""


class NoSuchTopic(NotThere):
    """The sample has no such topic or partition; it may be too young for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that views are made from.

    processes: of a lab's nodes by id.
    groups: by name, or None before they were read.
    groups_left_out: those beyond the limit.
    logs: of the replicas of partitions that pages show, by topic and number, and broker id.
    figures: of share-partitions; None before they were read, or if nothing is to be read.
    reads_metrics: the console reads pages of metrics.
    """

    sample: Sample
    summaries: Summaries
    news: Sequence[News] = ()
    processes: Mapping[int, Document] = field(default_factory=dict)
    groups: Mapping[str, Document] | None = None
    groups_left_out: int = 0
    logs: Mapping[tuple[str, int], Mapping[int, Seen]] = field(default_factory=dict)
    figures: ShareFigures | None = None
    reads_metrics: bool = False


View = Callable[[Facts, Parameters], Document]


def quorum_view(facts: Facts, _: Parameters) -> Document:
    """Voters and observers with roles, epochs and lag; elections; the cluster in numbers."""
    sample = facts.sample
    rows = {str(node.node_id): _quorum_row(node, facts) for node in _quorum_nodes(facts)}
    return {
        "cluster_id": sample.cluster_id,
        "leader_id": _known(sample.leader_id),
        "leader_epoch": _known(sample.leader_epoch),
        "high_watermark": _known(sample.high_watermark),
        "no_quorum": sample.no_quorum,
        "hidden": dict(sample.hidden),
        "nodes": rows,
        "order": list(rows),
        "timeline": [
            {"at_ms": line.at_ms, "node": line.node_id, "text": line.text}
            for line in sample.timeline[::-1]
        ],
        "totals": _totals(facts),
        "brokers": {
            "all": len(sample.image.brokers),
            "active": sum(broker.is_active for broker in sample.image.brokers.values()),
        },
        "news": news_rows(facts.news),
    }


def brokers_view(facts: Facts, _: Parameters) -> Document:
    """Registered brokers with their state, place, partitions and lag of the metadata."""
    sample, totals = facts.sample, facts.summaries.totals
    lags = {node.node_id: _lag_of(node, sample) for node in sample.nodes}
    rows = {}
    for broker_id, broker in sorted(sample.image.brokers.items()):
        replicas = totals.replicas.get(broker_id, 0)
        rows[str(broker_id)] = {
            "id": broker_id,
            "address": _address_of(broker, sample),
            "rack": broker.rack,
            "state": _broker_state(broker),
            "broker_epoch": _known(broker.broker_epoch),
            "leaders": totals.leaders.get(broker_id, 0),
            "replicas": replicas,
            "out_of_sync": replicas - totals.in_sync.get(broker_id, 0),
            "lag": lags.get(broker_id),
            "process": facts.processes.get(broker_id),
        }
    return {
        "rows": rows,
        "order": list(rows),
        "totals": _totals(facts),
        "news": news_rows(facts.news),
    }


def topics_view(facts: Facts, parameters: Parameters) -> Document:
    """A page of topics. q: a part of the name. only: `problems`. internal: 1 shows internal topics
    too. sort: name, partitions or problems."""
    text = parameters.get("q", "").lower()
    only, sort = parameters.get("only", ""), parameters.get("sort", "name")
    with_internal = parameters.get("internal") == "1"
    found = [
        each
        for each in facts.summaries.topics.values()
        if text in each.name.lower()
        and (only != "problems" or not each.is_healthy)
        and (with_internal or text or not each.name.startswith(IS_INTERNAL))
    ]
    if sort == "partitions":
        found.sort(key=lambda each: (-each.partitions, each.name))
    elif sort == "problems":
        found.sort(key=_badness)
    elif sort != "name":
        raise BadParameter(f"sort={sort} is none of name, partitions, problems")
    start, limit = window(parameters)
    shown = found[start : start + limit]
    return {
        "total": facts.summaries.totals.topics,
        "matched": len(found),
        "start": start,
        "limit": limit,
        "rows": {each.name: _topic_row(each, facts.sample) for each in shown},
        "order": [each.name for each in shown],
        "totals": _totals(facts),
        "news": news_rows(facts.news),
    }


def topic_view(facts: Facts, parameters: Parameters) -> Document:
    """A page of the partitions of the topic `name`, or `absent`. only: `problems`."""
    name = parameters.get("name", "")
    topic = facts.sample.image.topic(name)
    summary = facts.summaries.topics.get(name)
    news = [row for row in news_rows(facts.news) if name in row["text"]]
    if topic is None or summary is None:
        return {"absent": f"the cluster has no topic {name!r}", "news": news}
    numbers = sorted(topic.partitions)
    if parameters.get("only") == "problems":
        numbers = [n for n in numbers if state_of(topic.partitions[n], summary.min_isr) != "ok"]
    start, limit = window(parameters)
    shown = numbers[start : start + limit]
    return {
        "name": name,
        "topic_id": uuid_text(topic.topic_id),
        "summary": _topic_row(summary, facts.sample),
        "matched": len(numbers),
        "start": start,
        "limit": limit,
        "rows": {str(n): _partition_row(n, topic.partitions[n], summary.min_isr) for n in shown},
        "order": [str(n) for n in shown],
        "news": news,
    }


def replication_view(facts: Facts, parameters: Parameters) -> Document:
    """The logs of the replicas of a page of the topic `name`'s partitions; without a name, the
    metadata log of voters and observers."""
    sample, name = facts.sample, parameters.get("name", "")
    news = news_rows(facts.news)
    document: Document = {"name": name, "news": [row for row in news if name in row["text"]]}
    if not name:
        rows = {} if "quorum" in sample.hidden else {"metadata": _metadata_log(facts)}
        return {**document, "hidden": dict(sample.hidden), "rows": rows, "order": list(rows)}
    topic, summary = sample.image.topic(name), facts.summaries.topics.get(name)
    if topic is None or summary is None:
        return {"absent": f"the cluster has no topic {name!r}", "news": []}
    shown = logs_shown(sample.image, parameters)
    start, limit = window(parameters)
    return {
        **document,
        "matched": len(topic.partitions),
        "start": start,
        "limit": min(limit, LOGS_MAX),
        "rows": {
            str(number): {
                **_partition_row(number, topic.partitions[number], summary.min_isr),
                **replica_rows(topic.partitions[number], facts.logs.get((name, number), {})),
            }
            for _, number in shown
        },
        "order": [str(number) for _, number in shown],
    }


def logs_shown(image: ClusterImage, parameters: Parameters) -> list[tuple[str, int]]:
    """The partitions whose logs the replication view shows. Raises BadParameter."""
    name = parameters.get("name", "")
    topic = image.topic(name)
    if topic is None:
        return []
    start, limit = window(parameters)
    numbers = sorted(topic.partitions)[start : start + min(limit, LOGS_MAX)]
    return [(name, number) for number in numbers]


def groups_view(facts: Facts, parameters: Parameters) -> Document:
    """A page of groups with their members and lag. q: a part of the name."""
    if facts.groups is None:
        return {"is_waiting": True, "rows": {}, "order": [], "matched": 0, "total": 0}
    text = parameters.get("q", "").lower()
    names = [name for name in facts.groups if text in name.lower()]
    start, limit = window(parameters)
    shown = names[start : start + limit]
    return {
        "total": len(facts.groups),
        "left_out": facts.groups_left_out,
        "matched": len(names),
        "start": start,
        "limit": limit,
        "rows": {name: _group_row(facts.groups[name]) for name in shown},
        "order": shown,
    }


def group_view(facts: Facts, parameters: Parameters) -> Document:
    """The group `name`: its members, and the lag of each partition; or `absent`.

    In a share group `committed_offset` is the start offset, and each partition has `members`: the
    ids of those that it is assigned to. It has the keys of `ShareFigures.rows`, too, while a member
    fetches from a leader whose metrics are read; `figures_note` says what is missing.
    """
    name = parameters.get("name", "")
    if facts.groups is None:
        return {"is_waiting": True}
    group = facts.groups.get(name)
    if group is None:
        more = f" among the first {len(facts.groups)}" if facts.groups_left_out else ""
        return {
            "absent": f"the cluster has no group {name!r}{more}",
            "left_out": facts.groups_left_out or None,
        }
    start, limit = window(parameters)
    offsets = {f"{row['topic']}-{row['partition']}": row for row in group["offsets"]}
    shown = list(offsets)[start : start + limit]
    rows = {key: offsets[key] for key in shown}
    note = None
    if group["type"] == "share":
        figures = facts.figures or ShareFigures()
        rows = {
            key: {
                **row,
                **figures.rows.get((name, row["topic"], row["partition"]), {}),
                "members": _members_of(key, group),
            }
            for key, row in rows.items()
        }
        note = NO_PAGES
        if facts.reads_metrics:
            brokers = len(facts.sample.image.brokers)
            note = None if facts.figures is None else facts.figures.note(brokers)
    return {
        **_group_row(group),
        "figures_note": note,
        "name": name,
        "matched": len(offsets),
        "start": start,
        "limit": limit,
        "rows": rows,
        "order": shown,
        "member_rows": {row["member_id"]: row for row in group["members"][:ROWS_MAX]},
    }


def status_view(facts: Facts, _: Parameters) -> Document:
    """For a page without a live view: the news, which every page shows, and the brokers' ids."""
    return {
        "news": news_rows(facts.news),
        "brokers": sorted(facts.sample.image.brokers)[:ROWS_MAX],
    }


VIEWS: dict[str, View] = {
    "status": status_view,
    "quorum": quorum_view,
    "brokers": brokers_view,
    "topics": topics_view,
    "topic": topic_view,
    REPLICATION: replication_view,
    "groups": groups_view,
    "group": group_view,
}

OF_GROUPS = frozenset({"groups", "group"})
"""Views that need the groups to be read."""
OF_SHARE_PARTITIONS = frozenset({"group"})
"""Views that show what only the brokers' metrics have of share-partitions."""


def document_of(name: str, facts: Facts, parameters: Parameters) -> Document:
    """The view of this name, without nulls. A view of one topic or group that does not exist has
    `absent`, a sentence, in place of rows. Raises NotThere for an unknown view, BadParameter."""
    view = VIEWS.get(name)
    if view is None:
        raise NotThere(f"there is no view {name!r}; there are {', '.join(VIEWS)}")
    document: Document = without_nulls(view(facts, parameters))
    return document


def window(parameters: Parameters) -> tuple[int, int]:
    """(start, limit) of a page of rows. Raises BadParameter."""
    return (
        whole(parameters, "start", 0),
        min(max(whole(parameters, "limit", ROWS_DEFAULT), 1), ROWS_MAX),
    )


def whole(parameters: Parameters, name: str, default: int, *, least: int = 0) -> int:
    """A parameter that is a whole number, at least `least`. Raises BadParameter."""
    text = parameters.get(name, "")
    if not text:
        return default
    value = whole_number(text)
    if value is None:
        raise BadParameter(f"{name}={text[:40]} is not a whole number of 0 or more")
    if not least <= value < 1 << 63:
        raise BadParameter(f"{name}={text[:40]} is not between {least} and {(1 << 63) - 1}")
    return value


def news_rows(news: Sequence[News]) -> list[Document]:
    """The newest first."""
    return [{"at_ms": n.at_ms, "kind": n.kind, "text": n.text} for n in reversed(news)]


# --- rows -------------------------------------------------------------------------------------


def _known(number: int) -> int | None:
    """None for -1, which stands for a number that nobody told."""
    return number if number >= 0 else None


def _address_of(broker: BrokerImage, sample: Sample) -> str:
    """The broker's listener for the user, the same whether the metadata log or a broker tells."""
    endpoint = broker.client_endpoint(sample.protocol)
    return address_text(endpoint.host, endpoint.port)


def _totals(facts: Facts) -> Document:
    totals = facts.summaries.totals
    return {
        "topics": totals.topics,
        "partitions": totals.partitions,
        "offline": totals.offline,
        "under_min_isr": totals.under_min_isr,
        "under_replicated": totals.under_replicated,
    }


def _quorum_nodes(facts: Facts) -> list[QuorumNode]:
    """Voters, then observers. A new leader does not know observers that died before its election:
    those of a lab are added, so that their buttons stay."""
    known = {node.node_id for node in facts.sample.nodes}
    voters = [node for node in facts.sample.nodes if node.kind == "voter"]
    observers = [node for node in facts.sample.nodes if node.kind != "voter"]
    observers += [
        QuorumNode(node_id=node_id, kind="observer")
        for node_id in facts.processes
        if known and node_id not in known
    ]
    return voters + sorted(observers, key=lambda node: node.node_id)


def _quorum_row(node: QuorumNode, facts: Facts) -> Document:
    sample, process = facts.sample, facts.processes.get(node.node_id)
    answer = sample.answers.get(node.node_id)
    broker = sample.image.brokers.get(node.node_id)
    address = sample.addresses.get(node.node_id)
    if address is None and broker is not None:
        address = _address_of(broker, sample)
    return {
        "id": node.node_id,
        "kind": node.kind,
        "is_broker": broker is not None or bool(process and process.get("is_broker")),
        "role": _role_of(node, sample),
        "epoch": None if answer is None else answer.epoch,
        "address": address,
        "end_offset": _known(node.end_offset),
        "lag": _lag_of(node, sample),
        "fetch_age_ms": _age(node.last_fetch_ms, sample),
        "caught_up_age_ms": _age(node.last_caught_up_ms, sample),
        "process": process,
    }


def _metadata_log(facts: Facts) -> Document:
    sample = facts.sample
    roles = {node.node_id: _role_of(node, sample) for node in _quorum_nodes(facts)}
    return {
        "leader": _known(sample.leader_id),
        "leader_epoch": _known(sample.leader_epoch),
        "state": "offline" if sample.leader_id < 0 else "ok",
        **metadata_rows(sample, _quorum_nodes(facts), roles),
    }


def _role_of(node: QuorumNode, sample: Sample) -> str:
    if node.node_id == sample.leader_id:
        return "leader"
    answer = sample.answers.get(node.node_id)
    if answer is not None:
        is_observer = node.kind == "observer" and answer.role == "follower"
        return "observer" if is_observer else answer.role
    if node.node_id in sample.addresses or node.kind == "voter":
        return "unreachable"
    # A broker has no service to ask; its fetches tell whether it follows.
    age_ms = _age(node.last_fetch_ms, sample)
    if age_ms is None:  # never under this leader, or there is none that could tell
        return "observer" if sample.leader_id < 0 else "silent"
    return "silent" if age_ms > SILENT_AFTER_MS else "observer"


def _lag_of(node: QuorumNode, sample: Sample) -> int | None:
    leader = next((n for n in sample.nodes if n.node_id == sample.leader_id), None)
    if leader is None or node.end_offset < 0:
        return None
    return max(leader.end_offset - node.end_offset, 0)


def _age(at_ms: int, sample: Sample) -> int | None:
    return None if at_ms < 0 else max(sample.taken_ms - at_ms, 0)


def _broker_state(broker: BrokerImage) -> str:
    if broker.is_fenced:
        return "fenced"
    return "shutting down" if broker.in_controlled_shutdown else "active"


def _topic_row(summary: TopicSummary, sample: Sample) -> Document:
    return {
        "name": summary.name,
        "partitions": summary.partitions,
        "replication_factor": summary.replication_factor,
        "min_isr": None if "min_isr" in sample.hidden else summary.min_isr,
        "offline": summary.offline,
        "under_min_isr": summary.under_min_isr,
        "under_replicated": summary.under_replicated,
    }


def _badness(summary: TopicSummary) -> tuple[int, int, int, str]:
    return (
        -summary.offline,
        -summary.under_min_isr,
        -summary.under_replicated,
        summary.name,
    )


def _partition_row(number: int, partition: PartitionImage, min_isr: int) -> Document:
    return {
        "partition": number,
        "leader": _known(partition.leader),
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "adding": list(partition.adding_replicas),
        "removing": list(partition.removing_replicas),
        "state": state_of(partition, min_isr),
    }


def _group_row(group: Document) -> Document:
    lags = [row["lag"] for row in group["offsets"] if row["lag"] is not None]
    return {
        "group": group["group"],
        "state": group["state"],
        "type": group["type"],
        "protocol": group["protocol"],
        "coordinator": group["coordinator"],
        "members": len(group["members"]),
        "partitions": len(group["offsets"]),
        "lag": sum(lags) if lags else None,
    }


def _members_of(partition: str, group: Document) -> list[str]:
    """The ids of the members that a partition (`topic-0`) is assigned to, in order."""
    return sorted(
        member["member_id"]
        for member in group["members"]
        if partition in (member["partitions"] or ())
    )
