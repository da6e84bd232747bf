"""An authorizer that follows the cluster image."""

from __future__ import annotations

from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage


def follow_acls(authorizer: Authorizer, delta: Delta | None, image: ClusterImage) -> None:
    """Answer by the ACLs of the image from now on. delta: the change from the image before; None,
    or one from nothing, if the image was loaded whole."""
    if delta is None or delta.base is EMPTY_IMAGE:
        authorizer.replace(image.acls.values())
    elif delta.added_acls or delta.removed_acls:
        authorizer.change(added=delta.added_acls, removed=delta.removed_acls)
