"""The difference of two images for one broker, against a slow and obvious version."""

from __future__ import annotations

import random

from kvorum.broker.manager.metadata_plan import Delete, Follow, Lead, plan
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import Partition, PartitionChange, Record, RemoveTopic, Topic
from kvorum.runtime.ids import new_uuid


def step(image: ClusterImage, *records: Record) -> tuple[Delta, ClusterImage]:
    delta = Delta(image)
    delta.replay_all(records)
    return delta, delta.apply(end_offset=image.end_offset + len(records), epoch=1)


def test_a_recreated_topic_is_another_topic() -> None:
    old_id, new_id = b"a" * 16, b"b" * 16
    _, before = step(EMPTY_IMAGE, Topic("t", old_id), Partition(old_id, 0, (1, 2), (1, 2), 1))
    delta, after = step(
        before, RemoveTopic(old_id), Topic("t", new_id), Partition(new_id, 0, (2, 1), (2, 1), 2)
    )
    for given in (delta, None):
        assert plan(before, after, 1, given) == [
            Delete(topic="t", topic_id=old_id, partition_id=0),
            Follow(topic="t", topic_id=new_id, partition_id=0, image=after.partition(new_id, 0)),
        ]


def test_replicas_moved_away_are_deleted_and_others_are_left_alone() -> None:
    topic_id = b"a" * 16
    _, before = step(
        EMPTY_IMAGE,
        Topic("t", topic_id),
        Partition(topic_id, 0, (1, 2), (1, 2), 1),
        Partition(topic_id, 1, (1, 2), (1, 2), 1),
    )
    delta, after = step(before, PartitionChange(topic_id, 0, (2,), 2, (2, 3)))
    assert plan(before, after, 1, delta) == [Delete(topic="t", topic_id=topic_id, partition_id=0)]
    assert [type(a) for a in plan(before, after, 2, delta)] == [Lead]
    assert [type(a) for a in plan(before, after, 3, delta)] == [Follow]
    assert plan(before, after, 4, delta) == []


def test_nothing_to_do_when_nothing_changed() -> None:
    topic_id = b"a" * 16
    _, image = step(EMPTY_IMAGE, Topic("t", topic_id), Partition(topic_id, 0, (1,), (1,), 1))
    assert plan(image, image, 1) == []


def obvious(before: ClusterImage, after: ClusterImage, broker_id: int) -> set[tuple[object, ...]]:
    def held(image: ClusterImage) -> dict[tuple[bytes, int], object]:
        return {
            (topic_id, p): partition
            for topic_id, topic in image.topics.items()
            for p, partition in topic.partitions.items()
            if broker_id in partition.replicas
        }

    old, new = held(before), held(after)
    rows: set[tuple[object, ...]] = {("delete", *key) for key in old.keys() - new.keys()}
    for key, partition in new.items():
        if old.get(key) != partition:
            kind = "lead" if partition.leader == broker_id else "follow"
            rows.add((kind, *key))
    return rows


def test_random_histories_agree_with_the_obvious_plan() -> None:
    rng = random.Random(5)
    image = EMPTY_IMAGE
    for _ in range(400):
        records: list[Record] = []
        live = {t: sorted(topic.partitions) for t, topic in image.topics.items()}
        for _ in range(rng.randrange(1, 4)):
            choice = rng.random()
            if choice < 0.3 or not live:
                topic_id = new_uuid(rng)
                name = f"t{rng.randrange(5)}"
                taken = {image.topics[t].name for t in live if t in image.topics}
                if name in taken or any(isinstance(r, Topic) and r.name == name for r in records):
                    continue
                records.append(Topic(name, topic_id))
                for p in range(rng.randrange(1, 3)):
                    replicas = tuple(rng.sample((1, 2, 3), 2))
                    records.append(Partition(topic_id, p, replicas, replicas, replicas[0]))
            elif choice < 0.5:
                topic_id = rng.choice(sorted(live))
                del live[topic_id]
                records.append(RemoveTopic(topic_id))
            else:
                topic_id = rng.choice(sorted(live))
                replicas = tuple(rng.sample((1, 2, 3), 2))
                records.append(
                    PartitionChange(
                        topic_id, rng.choice(live[topic_id]), replicas, replicas[0], replicas
                    )
                )
        delta, after = step(image, *records)
        for broker_id in (1, 2, 3):
            for given in (delta, None):
                actions = plan(image, after, broker_id, given)
                got = {(type(a).__name__.lower(), a.topic_id, a.partition_id) for a in actions}
                assert got == obvious(image, after, broker_id)
                assert len(got) == len(actions)
                kinds = [isinstance(a, Delete) for a in actions]
                assert kinds == sorted(kinds, reverse=True), "deletions come first"
        image = after
