"""A coroutine that is begun without a task, and goes on in one if it has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from runtime.eager import begin


async def answer(*waits: asyncio.Future[Any]) -> list[Any]:
    """What the futures bring, one after the other; exceptions as they are."""
    found: list[Any] = []
    for future in waits:
        try:
            found.append(await future)
        except ValueError as error:
            found.append(str(error))
    return found


def run(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(story)


def test_what_needs_no_wait_is_done_at_once() -> None:
    async def story() -> None:
        done = asyncio.get_running_loop().create_future()
        done.set_result(3)
        begun = begin(answer(done))
        assert (begun.is_done, begun.result) == (True, [3])

    run(story())


def test_what_waits_goes_on_in_a_task() -> None:
    async def story() -> list[Any]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        begun = begin(answer(*futures))
        assert not begun.is_done
        task = asyncio.ensure_future(begun.rest())
        await asyncio.sleep(0)
        futures[0].set_result("a")
        await asyncio.sleep(0)
        futures[1].set_exception(ValueError("b"))
        futures[2].set_result("c")
        return await task

    assert run(story()) == ["a", "b", "c"]


def test_what_it_waited_for_may_have_come_before_the_task() -> None:
    async def story() -> list[Any]:
        future = asyncio.get_running_loop().create_future()
        begun = begin(answer(future))
        future.set_result("early")
        return await asyncio.ensure_future(begun.rest())

    assert run(story()) == ["early"]


def test_an_error_before_the_first_wait_comes_out_at_once_and_one_after_it_from_the_task() -> None:
    async def broken(*waits: asyncio.Future[None]) -> None:
        for future in waits:
            await future
        raise KeyError("broken")

    async def story() -> None:
        with pytest.raises(KeyError):
            begin(broken())
        future = asyncio.get_running_loop().create_future()
        rest = begin(broken(future)).rest()
        future.set_result(None)
        with pytest.raises(KeyError):
            await asyncio.ensure_future(rest)

    run(story())


def test_a_cancelled_task_cancels_what_is_left() -> None:
    seen = []

    async def cleans_up(future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def story() -> None:
        task = asyncio.ensure_future(
            begin(cleans_up(asyncio.get_running_loop().create_future())).rest()
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story())
    assert seen == ["cancelled"]
