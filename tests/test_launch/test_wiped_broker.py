"""A broker whose disks were wiped starts empty and logs a warning, since the cluster has replicas
for it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvorum.launch.directories.log_directories import OwnDirectories
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.runtime.ids import uuid_text
from tests.test_launch.node_folders import TOPIC_ID, process_on, take


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "x", tmp_path / "y"


def test_a_wiped_broker_is_known_by_the_replicas_that_the_cluster_has_of_it(
    paths: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    def started(replicas: int, *, metadata: Path | None = None) -> OwnDirectories:
        caplog.clear()
        own = take(*paths, metadata=metadata)
        own.release()
        own.warn_of_loss(str(metadata or paths[0]), lambda: replicas)
        return own

    with caplog.at_level(logging.WARNING):
        started(0)
        assert caplog.messages == []  # a new broker
        started(4)
        assert caplog.messages == []  # one that comes back with its disks
        for path in paths:
            shutil.rmtree(path)
        own = started(4)
        said = list(caplog.messages)
        assert len(said) == 2
        for path, message in zip(paths, said, strict=True):
            new = own.found[str(path)].directory_id
            assert new is not None
            assert f"{path} was empty and begins as a new data directory, id {uuid_text(new)}; the "
            assert "the cluster has 4 replicas of this broker, so it has run before" in message
        # The metadata log alone loses nothing: it is fetched again.
        started(4, metadata=paths[0].parent / "log")
        assert caplog.messages == []


def test_a_broker_that_registers_asks_the_cluster_for_its_replicas(
    paths: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TopicImage(
        name="t",
        topic_id=TOPIC_ID,
        partitions=Map(
            {
                i: PartitionImage(
                    replicas=replicas, isr=(7,), leader=7, leader_epoch=0, partition_epoch=0
                )
                for i, replicas in enumerate(((101, 7), (7,), (7, 101)))
            }
        ),
    )
    process = process_on(paths[0])
    seen = ClusterImage(topics=Map({TOPIC_ID: topic}))

    async def load(newest: object) -> None:
        process._publisher.image = seen

    class Asked(Exception):
        """Raised when the start asks the image for its replicas."""

    async def placed(own: OwnDirectories) -> None:
        pass

    def warn_of_loss(own: OwnDirectories, path: str, replicas: Callable[[], int]) -> None:
        assert (path, replicas()) == (str(paths[0]), 2)
        raise Asked

    monkeypatch.setattr(process._publisher, "load", load)
    monkeypatch.setattr(process, "_register", placed)
    monkeypatch.setattr(OwnDirectories, "warn_of_loss", warn_of_loss)

    async def start() -> None:
        with pytest.raises(Asked):
            await process.start()
        await process.stop()

    asyncio.run(start())
