"""The sticky assignor: every task once, balanced, standbys elsewhere, and few tasks moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.groups.streams.assignor import Worker, assign_sticky
from kvorum.broker.groups.streams.configuring import ConfiguredSubtopology
from kvorum.broker.groups.streams.tasks import Tasks
from kvorum.broker.groups.streams.topology import InternalTopic
from tests.test_groups.streams.world import tasks


def part(num_tasks: int, *, is_stateful: bool = False) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        num_tasks=num_tasks,
        source_topics=("in",),
        repartition_sink_topics=(),
        repartition_source_topics=(),
        state_changelog_topics=(InternalTopic("log", num_tasks),) if is_stateful else (),
    )


def after(workers: dict[str, Worker], found: dict[str, Tasks]) -> dict[str, Worker]:
    """The members, once they have what they were assigned."""
    return {name: Worker(worker.process_id, found[name]) for name, worker in workers.items()}


def moved(workers: dict[str, Worker], found: dict[str, Tasks]) -> int:
    """How many active tasks are with a member that did not have them."""
    return sum(len(found[name].active - worker.has.active) for name, worker in workers.items())


@st.composite
def clusters(draw):
    processes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    workers = {
        f"m{place}-{thread}": Worker(f"p{place}")
        for place, threads in enumerate(processes)
        for thread in range(threads)
    }
    parts = {
        str(number): part(draw(st.integers(1, 12)), is_stateful=draw(st.booleans()))
        for number in range(draw(st.integers(1, 3)))
    }
    return workers, parts, draw(st.integers(0, 2))


@given(clusters())
def test_every_task_has_one_active_member_and_its_standbys_are_on_other_processes(cluster):
    workers, parts, replicas = cluster
    found = assign_sticky(workers, parts, replicas)
    every = [task for name in workers for task in found[name].active]
    assert sorted(every) == [
        (n, p) for n, one in sorted(parts.items()) for p in range(one.num_tasks)
    ]
    places: dict = {}
    for name, worker in workers.items():
        for task in (*found[name].active, *found[name].standby):
            places.setdefault(task, []).append(worker.process_id)
    processes = {worker.process_id for worker in workers.values()}
    for task, where in places.items():
        assert len(set(where)) == len(where), "two copies on a process"
        copies = 1 + (replicas if parts[task[0]].is_stateful else 0)
        assert len(where) == min(copies, len(processes))


@given(clusters())
def test_processes_have_active_tasks_in_proportion_to_their_members(cluster):
    workers, parts, _ = cluster
    found = assign_sticky(workers, parts, 0)
    counts = {name: len(found[name].active) for name in workers}
    assert max(counts.values()) - min(counts.values()) <= 1


@given(clusters(), st.data())
def test_without_a_change_nothing_moves_and_after_one_only_what_has_to(cluster, data):
    workers, parts, replicas = cluster
    first = assign_sticky(workers, parts, replicas)
    settled = after(workers, first)
    assert moved(settled, assign_sticky(settled, parts, replicas)) == 0
    gone = data.draw(st.sampled_from(sorted(workers)))
    left = {name: worker for name, worker in settled.items() if name != gone}
    found = assign_sticky(left, parts, replicas)
    if left:
        assert moved(left, found) <= len(first[gone].active) + len(left)


def test_a_new_member_takes_no_more_than_its_share():
    settled = after(
        {"a": Worker("a"), "b": Worker("b")},
        assign_sticky({"a": Worker("a"), "b": Worker("b")}, {"0": part(6)}, 0),
    )
    found = assign_sticky({**settled, "c": Worker("c")}, {"0": part(6)}, 0)
    assert [len(found[name].active) for name in "abc"] == [2, 2, 2]
    assert moved(settled, found) == 0


def test_a_task_goes_to_the_standby_when_its_member_is_gone():
    workers = {
        "a": Worker("a", Tasks(standby=tasks("0", 0, 1))),
        "b": Worker("b"),
    }
    found = assign_sticky(workers, {"0": part(2, is_stateful=True)}, 0)
    assert len(found["a"].active) == 1, "as many as its share"
    alone = assign_sticky({"a": workers["a"]}, {"0": part(2, is_stateful=True)}, 0)
    assert alone["a"].active == tasks("0", 0, 1)


def test_a_state_on_disk_draws_its_task_and_a_longer_one_more():
    workers = {
        "a": Worker("a", offsets={("0", 0): 5}),
        "b": Worker("b", offsets={("0", 0): 9}),
    }
    found = assign_sticky(workers, {"0": part(1, is_stateful=True)}, 0)
    assert found["b"].active == tasks("0", 0)


def test_nobody_to_assign_to_is_no_assignment():
    assert assign_sticky({}, {"0": part(3)}, 1) == {}
