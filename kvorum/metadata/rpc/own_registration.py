"""A controller's own registration in the committed metadata. Pure."""

from __future__ import annotations

from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.text import address_text


class OwnRegistration:
    """incarnation_id: of this process."""

    def __init__(self, controller_id: int, incarnation_id: bytes) -> None:
        self._controller_id = controller_id
        self._incarnation_id = incarnation_id
        self._has_been_shown = False

    def is_in(self, image: ClusterImage) -> bool:
        """True if the metadata has this process."""
        known = image.controllers.get(self._controller_id)
        return known is not None and known.incarnation_id == self._incarnation_id

    def is_removed(self, image: ClusterImage) -> bool:
        """True if the metadata has had this process, and has no process under its id any more."""
        return self._has_been_shown and self._controller_id not in image.controllers

    def replaced(self, image: ClusterImage) -> str | None:
        """A sentence if another process has registered under this id since the metadata had this
        one; else None.

        A data directory's lock keeps a second process away, but not from a copy of the directory:
        both would vote as one voter, and a quorum could have two leaders in one epoch.
        """
        if self.is_in(image):
            self._has_been_shown = True
            return None
        known = image.controllers.get(self._controller_id)
        if known is None or not self._has_been_shown:
            return None
        at = ", ".join(address_text(e.host, e.port) for e in known.endpoints)
        return (
            f"another process has registered as controller {self._controller_id}, at {at}: two "
            "processes must not vote as one; stop it, and give it no copy of this data directory"
        )
