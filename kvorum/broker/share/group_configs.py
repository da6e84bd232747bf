"""The configs of share groups, as they are now: a change is obeyed from the next request on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvorum.broker.share.core.group_limits import (
    ShareDefaults,
    limits_of,
    reads_committed,
    reset_of,
)
from kvorum.broker.share.core.share_partition import ShareLimits
from kvorum.metadata.image.features import SHARE_VERSION, level_of
from kvorum.metadata.image.image import RESOURCE_GROUP, ClusterImage

_NO_CONFIGS: Mapping[str, str] = {}


class ShareGroupConfigs:
    """Reads the configs of a group by its id; see `core.group_limits`."""

    def __init__(self, image: Callable[[], ClusterImage], defaults: ShareDefaults) -> None:
        self._image = image
        self._defaults = defaults

    def limits(self, group_id: str) -> ShareLimits:
        level = level_of(self._image().features, SHARE_VERSION)
        return limits_of(self._of(group_id), self._defaults, may_have_dead_letters=level >= 2)

    def reads_committed(self, group_id: str) -> bool:
        return reads_committed(self._of(group_id))

    def reset(self, group_id: str) -> str | int:
        return reset_of(self._of(group_id))

    def _of(self, group_id: str) -> Mapping[str, str]:
        return self._image().configs.get((RESOURCE_GROUP, group_id), _NO_CONFIGS)
