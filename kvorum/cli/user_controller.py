"""The users of a cluster who log in by SCRAM, reached through a controller (gRPC)."""

from __future__ import annotations

from collections.abc import Iterable

from kvorum.broker.sasl.core.scram import derived_keys
from kvorum.cli.user_credentials import NewCredential, Users
from kvorum.client.cluster.controller_backend import ControllerBackend
from kvorum.client.failures import check
from kvorum.metadata.requests.scram_requests import (
    HASHES,
    AlterScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from kvorum.metadata.rpc.calls import ALTER_SCRAM_CREDENTIALS


class ControllerUsers(ControllerBackend):
    """SCRAM users through the controllers. The active one gets changes and reads; without one, the
    reachable controller with the highest high watermark answers reads, and stderr says so."""

    def users(self, names: Iterable[str] = ()) -> Users:
        wanted = set(names)
        return {
            user: {number: credential.iterations for number, credential in of_user.items()}
            for user, of_user in self._image().scram_credentials.items()
            if not wanted or user in wanted
        }

    def set_credential(self, credential: NewCredential) -> None:
        stored_key, server_key = derived_keys(
            HASHES[credential.mechanism], credential.salted_password
        )
        upsertion = ScramUpsertion(
            user=credential.user,
            mechanism=credential.mechanism,
            iterations=credential.iterations,
            salt=credential.salt,
            stored_key=stored_key,
            server_key=server_key,
        )
        self._alter(AlterScramCredentials(upsertions=(upsertion,)), credential.user)

    def remove_credential(self, user: str, mechanism: int) -> None:
        deletion = ScramDeletion(user=user, mechanism=mechanism)
        self._alter(AlterScramCredentials(deletions=(deletion,)), user)

    def super_users(self) -> tuple[str, ...]:
        return ()

    def _alter(self, request: AlterScramCredentials, user: str) -> None:
        for result in self.request(ALTER_SCRAM_CREDENTIALS, request, f"user {user}"):
            check(result.error, result.message, f"user {result.user}")
