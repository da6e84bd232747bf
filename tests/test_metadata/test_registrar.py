"""The task that registers a controller, on a loop that answers at once."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.requests.controller_requests import RegisterControllerRequest
from kvorum.metadata.rpc import registrar
from kvorum.metadata.rpc.registrar import Registrar
from tests.polling import until
from tests.test_metadata.test_own_registration import OWN, image_with


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
