"""What changed between two samples, in sentences: for the feed of the page and for screen readers.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from kvorum.console.core.sample import Sample
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage

SENTENCES_MAX = 20
"""Sentences of one change; a broker that dies changes every partition that it has."""

NAMED_MAX = 3
"""Partitions of a topic that are named one by one if the same befell them."""

_QUORUM = "quorum"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """at_ms: when the later sample was taken.
    kind: bad, good or plain.
    """

    at_ms: int
    kind: str
    text: str


def news_between(before: Sample, after: Sample) -> list[News]:
    """The sentences, the quorum's first; at most SENTENCES_MAX and one that counts the others."""
    found: list[tuple[str, str]] = []
    if _QUORUM not in before.hidden and _QUORUM not in after.hidden:
        # A right to see the quorum that was given or taken is no news of the quorum.
        found += _of_quorum(before, after)
    if before.cluster_id and after.cluster_id and before.cluster_id != after.cluster_id:
        found.append(("plain", f"another cluster answers: {after.cluster_id}"))
    elif before.image is not after.image and before.image.end_offset:
        found += _of_brokers(before.image, after.image)
        found += islice(_of_topics(before.image, after.image), _ALL_MAX)
    shown = found[:SENTENCES_MAX]
    if len(found) > SENTENCES_MAX:
        more = len(found) - SENTENCES_MAX
        count = f"{more}" if len(found) < _ALL_MAX else f"more than {more}"
        shown.append(("plain", f"and {count} more changes"))
    return [News(at_ms=after.taken_ms, kind=kind, text=text) for kind, text in shown]


_ALL_MAX = 10_000


def _of_quorum(before: Sample, after: Sample) -> Iterator[tuple[str, str]]:
    if after.leader_id < 0 <= before.leader_id:
        yield "bad", "the quorum has no leader"
    elif after.leader_id >= 0 and (
        (after.leader_id, after.leader_epoch) != (before.leader_id, before.leader_epoch)
    ):
        yield "good", f"controller {after.leader_id} leads in epoch {after.leader_epoch}"
    voters = {node.node_id for node in after.nodes if node.kind == "voter"}
    for node_id in sorted(voters):
        was, now = node_id in before.answers, node_id in after.answers
        if was != now and before.answers:
            yield (
                ("good", f"controller {node_id} answers")
                if now
                else (
                    "bad",
                    f"controller {node_id} does not answer",
                )
            )


def _of_brokers(before: ClusterImage, after: ClusterImage) -> Iterator[tuple[str, str]]:
    if before.brokers is after.brokers:
        return
    for broker_id in sorted({*before.brokers, *after.brokers}):
        old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
        if new is None:
            yield "plain", f"broker {broker_id} is unregistered"
        elif old is None:
            yield "plain", f"broker {broker_id} is registered"
        elif old.is_fenced != new.is_fenced:
            kind = "bad" if new.is_fenced else "good"
            yield kind, f"broker {broker_id} is {'fenced' if new.is_fenced else 'unfenced'}"
        elif new.in_controlled_shutdown and not old.in_controlled_shutdown:
            yield "plain", f"broker {broker_id} shuts down"


def _of_topics(before: ClusterImage, after: ClusterImage) -> Iterator[tuple[str, str]]:
    if before.topics is after.topics:
        return
    changed = [t for t in after.topics.values() if before.topics.get(t.topic_id) is not t]
    for topic_id, topic in before.topics.items():
        if topic_id not in after.topics:
            yield "plain", f"topic {topic.name} is deleted"
    for topic in sorted(changed, key=lambda t: t.name):
        old = before.topics.get(topic.topic_id)
        if old is None:
            yield "plain", f"topic {topic.name} is created"
        else:
            yield from _of_partitions(old, topic)


def _of_partitions(before: TopicImage, after: TopicImage) -> Iterator[tuple[str, str]]:
    """A sentence for each partition; one for all if the same befell many of the topic."""
    alike: dict[tuple[str, str], list[int]] = {}
    for number, new in sorted(after.partitions.items()):
        old = before.partitions.get(number)
        if old is not new:
            for change in _of_partition(old, new):
                alike.setdefault(change, []).append(number)
    for (kind, text), numbers in alike.items():
        if len(numbers) > NAMED_MAX:
            yield kind, text.format(f"{len(numbers)} partitions of {after.name}")
        else:
            yield from ((kind, text.format(f"{after.name}-{number}")) for number in numbers)


def _of_partition(
    before: PartitionImage | None, after: PartitionImage
) -> Iterator[tuple[str, str]]:
    """(kind, sentence with {} for the partition)."""
    if before is None:
        yield "plain", "added {}"
        return
    if before.leader != after.leader:
        is_led = after.leader >= 0
        text = f"broker {after.leader} leads {{}}" if is_led else "no broker leads {}"
        yield "plain" if is_led else "bad", text
    left = sorted(set(before.isr) - set(after.isr))
    joined = sorted(set(after.isr) - set(before.isr))
    for verb, kind, ids in (("left", "bad", left), ("joined", "good", joined)):
        if ids:
            noun = "broker" if len(ids) == 1 else "brokers"
            yield kind, f"{noun} {', '.join(map(str, ids))} {verb} the ISR of {{}}"
