"""The reference image: the committed records, applied one by one.

Every node's image is compared with the reference at its offset, however it was made: batch by
batch, in chunks, from a snapshot, or by the active controller's own decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvorum.chaos.sim.controller.record_checks import RecordChecks
from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.state import VOTERS_PREFIX
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import decode_record
from kvorum.metadata.image.records import Record

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.history import Attempt

CauseAt = Callable[[int, int], "Attempt | None"]
"""Epoch and offset to the attempt whose records begin there."""


class Reference:
    """The images of the committed records. images[n]: the image after the first n records."""

    def __init__(self, committed: Mirror, cause_at: CauseAt) -> None:
        self.images: list[ClusterImage] = [EMPTY_IMAGE]
        self.checks = RecordChecks()
        self._committed = committed
        self._cause_at = cause_at
        self._cause: Attempt | None = None

    def at(self, end_offset: int) -> ClusterImage:
        """The image of all records below end_offset, which must be committed."""
        self.advance()
        return self.images[end_offset]

    @property
    def newest(self) -> ClusterImage:
        """The image of all committed records."""
        self.advance()
        return self.images[-1]

    def advance(self) -> None:
        """Apply, and check, the records that have been committed since the last call."""
        entries = self._committed.entries
        while len(self.images) <= len(entries):
            offset = len(self.images) - 1
            epoch, value = entries[offset]
            self.images.append(self._after(offset, epoch, value))

    def agrees(self, image: ClusterImage, who: str, name: str = "ImagesAgree") -> None:
        """Check that `image` equals the reference image at its offset. name: of the check, since
        snapshots and speculative images have checks of their own. Raises CheckFailed."""
        self.advance()
        check(
            image.end_offset < len(self.images),
            name,
            f"{who} has an image of {image.end_offset} records, {len(self.images) - 1} are "
            "committed",
        )
        expected = self.images[image.end_offset]
        if image != expected:
            check(False, name, f"{who} at {image.end_offset}: {difference(image, expected)}")

    def _after(self, offset: int, epoch: int, value: bytes) -> ClusterImage:
        before = self.images[-1]
        delta = Delta(before)
        record: Record | None = None
        if value and not value.startswith(VOTERS_PREFIX):
            record = decode_record(value)
            delta.replay(record)
        after = delta.apply(end_offset=offset + 1, epoch=epoch)
        cause = self._cause_at(epoch, offset)
        if cause is not None:
            self._cause = cause
        cause = self._cause
        if record is None:
            return after
        check(
            cause is not None
            and cause.epoch == epoch
            and cause.base_offset <= offset < cause.end_offset
            and cause.values[offset - cause.base_offset] == value,
            "RefusedLeftNoTrace",
            f"{record} at {offset} of epoch {epoch} is committed; no controller decided it",
        )
        self.checks.on_record(offset, record, before, after, cause)
        if cause is not None and offset + 1 == cause.end_offset:
            self.checks.on_decision(offset + 1, after)
        return after


def difference(one: ClusterImage, other: ClusterImage) -> str:
    """The fields in which the first image differs from the second, in short."""
    found = []
    for name in ClusterImage.__slots__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine == theirs:
            continue
        if hasattr(mine, "items"):
            mine = {k: v for k, v in mine.items() if theirs.get(k) != v}
            theirs = {k: v for k, v in theirs.items() if k not in mine or mine[k] != v}
            theirs = {k: v for k, v in theirs.items() if getattr(one, name).get(k) != v}
        found.append(f"{name} {mine} for {theirs}")
    return "; ".join(found)[:2_000]
