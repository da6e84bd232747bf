"""A controller's own registration in the metadata, and another process that takes its place."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.records import Endpoint, RegisterController
from kvorum.metadata.requests.controller_requests import RegisterControllerRequest
from kvorum.metadata.rpc import registrar
from kvorum.metadata.rpc.own_registration import OwnRegistration
from kvorum.metadata.rpc.registrar import Registrar
from tests.polling import until

OWN, EARLIER, LATER = (bytes([n]) * 16 for n in (1, 2, 3))


def image_with(incarnation_id, controller_id=1):
    delta = Delta(EMPTY_IMAGE)
    endpoint = Endpoint("CONTROLLER", "h", 9093)
    delta.replay_all([RegisterController(controller_id, incarnation_id, (endpoint,), {})])
    return delta.apply(end_offset=1, epoch=1)


def test_another_process_that_registers_later_replaces_this_one():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(OWN)) is None
    reason = own.replaced(image_with(LATER))
    assert reason.startswith("another process has registered as controller 1, at h:9093: ")


def test_the_registration_of_an_earlier_process_replaces_nobody():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(EARLIER)) is None
    assert not own.is_in(image_with(EARLIER))
    assert own.is_in(image_with(OWN))


def test_a_registration_that_an_operator_removed_is_missed_once_it_was_there():
    own = OwnRegistration(1, OWN)
    assert not own.is_removed(EMPTY_IMAGE)
    own.replaced(image_with(OWN))
    assert not own.is_removed(image_with(OWN))
    assert own.is_removed(EMPTY_IMAGE)
    assert not own.is_removed(image_with(LATER))


def test_a_metadata_without_this_controller_replaces_nobody():
    own = OwnRegistration(1, OWN)
    assert own.replaced(image_with(OWN)) is None
    assert own.replaced(EMPTY_IMAGE) is None
    assert own.replaced(image_with(LATER, controller_id=2)) is None


# --- the task that registers, on a loop that answers at once


class ActiveController:
    """Commits the third request that is submitted; each before it shows an image without the
    controller."""

    leader_id = 1
    node = None

    def __init__(self) -> None:
        self.controller = SimpleNamespace(committed=EMPTY_IMAGE)
        self.submitted = 0
        self.registrar: Registrar | None = None

    async def submit(self, request: Any, timeout_ms: int) -> Any:
        self.submitted += 1
        self.show(EMPTY_IMAGE if self.submitted % 3 else image_with(OWN))
        return SimpleNamespace()

    def show(self, image: Any) -> None:
        self.controller.committed = image
        assert self.registrar is not None
        self.registrar.on_image(image)


async def removed_once(active: ActiveController) -> None:
    request = RegisterControllerRequest(
        controller_id=1, cluster_id="c", incarnation_id=OWN, endpoints=(), features=()
    )
    own = Registrar(active, request, on_refused=pytest.fail)  # type: ignore[arg-type]
    active.registrar = own
    task = asyncio.create_task(own.run())
    await until(lambda: active.submitted == 3, "the registration")
    active.show(EMPTY_IMAGE)
    await until(lambda: active.submitted == 6, "the registration anew")
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


def test_a_removed_controller_registers_anew_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registrar, "RETRY_PAUSE_S", 0)
    caplog.set_level(logging.INFO, "kvorum")
    active = ActiveController()
    asyncio.run(removed_once(active))
    assert active.submitted == 6
    assert len(caplog.records) == 2, [record.message for record in caplog.records]
