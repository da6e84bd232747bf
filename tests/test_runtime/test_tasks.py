"""TaskGroup reports failures to its owner; Worker runs calls in order in its thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kvorum.runtime.tasks import TaskGroup, Worker

DEADLINE_S = 30.0


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(DEADLINE_S):
            return await coroutine

    return asyncio.run(bounded())


def test_task_that_raises_is_told_to_the_owner():
    async def scenario():
        failed = asyncio.get_running_loop().create_future()
        group = TaskGroup(failed.set_result)

        async def fails():
            raise KeyError("x")

        group.spawn(fails(), "fails")
        error = await failed
        await group.stop()
        return error

    assert isinstance(run(scenario()), KeyError)


def test_stop_cancels_all_and_waits_for_the_last():
    async def scenario():
        ended = []
        group = TaskGroup(pytest.fail)
        begun = asyncio.Event()

        async def stays(name):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(name)

        for name in "ab":
            group.spawn(stays(name), name)
        await begun.wait()
        await group.stop()
        return ended

    assert sorted(run(scenario())) == ["a", "b"]


def test_stop_cancels_a_task_again_that_lost_its_cancellation(monkeypatch):
    """gRPC's stream loses a cancellation when it fails at the same moment."""
    monkeypatch.setattr("kvorum.runtime.tasks._CANCEL_AGAIN_S", 0.001)

    async def scenario():
        group = TaskGroup(pytest.fail)
        begun = asyncio.Event()
        lost = 0

        async def reconnects_for_ever():
            nonlocal lost
            while True:
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if lost == 2:
                        raise
                    lost += 1

        group.spawn(reconnects_for_ever(), "reconnects")
        await begun.wait()
        await group.stop()
        return lost

    assert run(scenario()) == 2


def test_failure_while_being_cancelled_is_not_told():
    async def scenario():
        group = TaskGroup(pytest.fail)
        begun = asyncio.Event()

        async def stubborn():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError from None

        group.spawn(stubborn(), "stubborn")
        await begun.wait()
        await group.stop()

    run(scenario())


def test_task_that_ends_well_or_is_cancelled_is_no_failure():
    async def scenario():
        group = TaskGroup(pytest.fail)
        assert await group.spawn(asyncio.sleep(0, "fine"), "fine") == "fine"
        begun = asyncio.Event()

        async def waits():
            begun.set()
            await asyncio.Event().wait()

        task = group.spawn(waits(), "waits")
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await group.stop()

    run(scenario())


def test_worker_runs_calls_in_order_in_one_thread_and_answers_on_the_loop():
    async def scenario():
        loop = asyncio.get_running_loop()
        worker = Worker("w", loop)
        seen = []
        done = asyncio.Event()

        def answered(result, error):
            assert threading.current_thread() is threading.main_thread()
            seen.append((result, error))
            if len(seen) == 100:
                done.set()

        for number in range(100):
            worker.submit(lambda n=number: (n, threading.current_thread().name), answered)
        await done.wait()
        worker.stop()
        return seen

    assert run(scenario()) == [((n, "w"), None) for n in range(100)]


def test_worker_hands_errors_over_and_goes_on():
    async def scenario():
        worker = Worker("w", asyncio.get_running_loop())
        answers = asyncio.Queue()

        def fails():
            raise OSError("disk")

        worker.submit(fails, lambda result, error: answers.put_nowait((result, error)))
        worker.submit(lambda: 5, lambda result, error: answers.put_nowait((result, error)))
        result, error = await answers.get()
        assert result is None and isinstance(error, OSError)
        assert await answers.get() == (5, None)
        worker.stop()

    run(scenario())


def test_worker_stop_finishes_what_is_queued():
    async def scenario():
        worker = Worker("w", asyncio.get_running_loop())
        ran = []
        gate = threading.Event()
        worker.submit(gate.wait, lambda *_: None)
        for number in range(10):
            worker.submit(lambda n=number: ran.append(n), lambda *_: None)
        gate.set()
        worker.stop()
        return ran

    assert run(scenario()) == list(range(10))


def test_answer_for_a_closed_loop_is_dropped():
    loop = asyncio.new_event_loop()
    worker = Worker("w", loop)
    loop.close()
    worker.submit(lambda: 1, lambda *_: None)
    worker.stop()
