"""A broker with data directories, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from kvorum.cli.directory_plan import Replica
from kvorum.client.connection import BrokerGone
from kvorum.wire.log_dirs_codec import DescribedDirectory, DescribedReplica


class FakeDirectories:
    """place: the path of each replica; moving: of each that moves, the path that it moves to.
    outages: so many questions in a row meet no broker. offline: paths that failed."""

    def __init__(
        self,
        place: Mapping[Replica, str],
        moving: Mapping[Replica, str] | None = None,
        *,
        paths: tuple[str, ...] = ("/a", "/b"),
        offline: tuple[str, ...] = (),
        outages: int = 0,
    ) -> None:
        self.broker_id = 101
        self.place, self.moving = dict(place), dict(moving or {})
        self.paths, self.offline, self.outages = paths, offline, outages
        self.wanted: list[dict[Replica, str]] = []

    def described(self) -> list[DescribedDirectory]:
        if self.outages:
            self.outages -= 1
            raise BrokerGone("broker h:1 went away: Connection refused")
        return [self._described(path) for path in self.paths]

    def _described(self, path: str) -> DescribedDirectory:
        contents = [
            DescribedReplica(topic=topic, partition_id=number, size_bytes=7, is_future=is_future)
            for is_future, found in ((False, self.place), (True, self.moving))
            for (topic, number), where in found.items()
            if where == path
        ]
        return DescribedDirectory(
            error=56 if path in self.offline else 0,
            path=path,
            directory_id=None,
            reason="EIO" if path in self.offline else "",
            contents=tuple(contents),
            total_bytes=-1,
            usable_bytes=-1,
        )

    def alter(self, wanted: Mapping[Replica, str]) -> dict[Replica, str]:
        self.wanted.append(dict(wanted))
        return {r: "NONE" if r in self.place else "REPLICA_NOT_AVAILABLE" for r in wanted}
