"""A broker's link to controllers that are gone, or that have no leader."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress

import grpc
import grpc.aio
import pytest

from kvorum.broker.controller_channel.lifecycle import BrokerLifecycleManager, RegistrationFailed
from kvorum.broker.controller_channel.quorum_wait import FIRST_WORD_S, PAUSE_S_MAX, QuorumWait
from kvorum.metadata.image.publisher import MetadataPublisher
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import RegisterBrokerRequest
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import ErrorCode, Rejected
from tests.test_runtime.http2_peers import free_port


def link_to(*ports: int) -> BrokerLifecycleManager:
    return BrokerLifecycleManager(
        ControllerClient({i + 1: f"127.0.0.1:{port}" for i, port in enumerate(ports)}),
        registration=RegisterBrokerRequest(
            broker_id=101,
            cluster_id="H8cXxonAvNgrLxjJFXJs9g",
            incarnation_id=bytes(16),
            endpoints=(Endpoint("PLAINTEXT", "h", 9092),),
            rack=None,
        ),
        publisher=MetadataPublisher(lambda delta, image: None, on_failure=pytest.fail),
        heartbeat_interval_ms=500,
        on_unfenced=lambda: None,
    )


async def left(link: BrokerLifecycleManager, timeout_ms: int) -> str | None:
    """Begin a controlled shutdown; the reason why the broker could not hand over leadership, or
    None."""
    heartbeats = asyncio.ensure_future(link.run_heartbeats())
    reason = await link.shut_down(timeout_ms)
    heartbeats.cancel()
    with suppress(asyncio.CancelledError):
        await heartbeats
    link.stop()
    await link._client.close()
    return reason


def test_a_broker_whose_controllers_are_all_gone_leaves_at_once() -> None:
    async def run() -> str | None:
        return await left(link_to(free_port(), free_port(), free_port()), 3_000)

    assert asyncio.run(run()) == "as all controllers are gone"


def test_a_broker_waits_for_a_controller_that_hangs() -> None:
    async def run() -> str | None:
        # The kernel takes the connection and nothing answers on it.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            return await left(link_to(silent.getsockname()[1], free_port()), 1_500)

    assert asyncio.run(run()) == "within 1500 ms"


@pytest.mark.parametrize(("left_ms", "said"), [(999, "101 is alive"), (1_001, "no active contr")])
def test_a_last_question_without_time_for_an_answer_hides_no_refusal(
    monkeypatch: pytest.MonkeyPatch, left_ms: int, said: str
) -> None:
    """If a quorum was lost since the refusal, a later start may succeed."""
    answers = [
        (0, Rejected(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "broker 101 is alive")),
        (60_000 - left_ms, Rejected(ErrorCode.REQUEST_TIMED_OUT, "no active controller")),
    ]

    async def run() -> None:
        link = link_to(free_port())

        async def request(*_: object) -> Rejected:
            return answers.pop(0)[1]

        monkeypatch.setattr(link._client, "request", request)
        times = iter([0, *(at for at, _ in answers)])
        monkeypatch.setattr(
            "kvorum.broker.controller_channel.lifecycle.monotonic_ms", lambda: next(times)
        )
        monkeypatch.setattr("kvorum.broker.controller_channel.lifecycle.REGISTRATION_BACKOFF_MS", 0)
        with pytest.raises(RegistrationFailed, match=said) as failed:
            await link.register()
        assert failed.value.may_succeed_later == (left_ms > 1_000)
        await link._client.close()

    asyncio.run(run())


class Leaderless(ControllerClient):
    async def describe(self, leader_wait_ms: int) -> Rejected:  # type: ignore[override]
        return Rejected(ErrorCode.REQUEST_TIMED_OUT, "no quorum: 0 of 1 voters reachable")


def test_a_broker_without_a_quorum_says_what_it_waits_for_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses: list[float] = []

    async def run() -> None:
        enough = asyncio.Event()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 9:
                enough.set()
                await asyncio.Event().wait()

        wait = QuorumWait(Leaderless({1: "h:1"}), 101, sleep=sleep)
        wait.begin()
        wait.begin()
        await enough.wait()
        wait.end()
        wait.end()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert pauses == [FIRST_WORD_S, 2, 4, 8, 16, 32, PAUSE_S_MAX, PAUSE_S_MAX, PAUSE_S_MAX]
    *said, last = caplog.messages  # the second `end` has nothing to say
    assert said == 8 * [
        "broker=101 waits for the quorum: no quorum: 0 of 1 voters reachable. This broker has not "
        "heard from a leader yet"
    ]
    assert last == "broker=101 waits for the quorum no more"


def test_a_broker_that_the_controllers_refuse_says_why(caplog: pytest.LogCaptureFixture) -> None:
    reason = "RegisterBroker is refused to User:x, who is not node 101"
    client = Leaderless({1: "h:1"})
    code, nothing = grpc.StatusCode, grpc.aio.Metadata()
    refusals = client.refusals
    assert not refusals.note(grpc.aio.AioRpcError(code.UNAVAILABLE, nothing, nothing, "gone"))
    assert (refusals.sentence, refusals.backoff_s) == ("", 0.02)
    denied = grpc.aio.AioRpcError(code.PERMISSION_DENIED, nothing, nothing, reason)
    pauses = []
    for _ in range(20):
        assert refusals.note(denied)
        pauses.append(refusals.backoff_s)
    assert pauses[:3] == [0.04, 0.08, 0.16] and pauses[-1] == 5

    async def run() -> None:
        said = asyncio.Event()

        async def sleep(seconds: float) -> None:
            if caplog.messages:
                said.set()
                await asyncio.Event().wait()

        wait = QuorumWait(client, 101, sleep=sleep)
        wait.begin()
        await said.wait()
        wait.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.messages == [f"broker=101 is refused by the controllers: {reason}"]
    refusals.clear()
    assert (refusals.sentence, refusals.backoff_s) == ("", 0.02)


def test_a_registration_and_heartbeats_without_a_leader_are_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kvorum.broker.controller_channel.quorum_wait.FIRST_WORD_S", 0.0)
    monkeypatch.setattr("kvorum.broker.controller_channel.quorum_wait.PAUSE_S_MAX", 0.0)

    async def heard(link: BrokerLifecycleManager, wait: object) -> None:
        said = asyncio.Event()
        monkeypatch.setattr(
            "kvorum.broker.controller_channel.quorum_wait.logger.warning", lambda *_: said.set()
        )
        task = asyncio.ensure_future(wait)  # type: ignore[arg-type]
        await said.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        link.stop()
        await link._client.close()

    async def run() -> None:
        for name in ("register", "run_heartbeats"):
            caplog.clear()
            link = link_to(free_port())
            await heard(link, getattr(link, name)())
            failures = [m for m in caplog.messages if "heartbeat to controller" in m]
            assert len(failures) == (name == "run_heartbeats")

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
