"""SCRAM credentials: changes, and that no dump shows their secrets."""

from __future__ import annotations

import json

import pytest

from kvorum.metadata.configs.secrets import record_to_dict
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import METADATA_VERSION, limited
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import decode_record, encode_record
from kvorum.metadata.image.records import ScramCredential
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.inspect.tree import content
from kvorum.metadata.requests.controller_requests import FeatureUpdate, UpdateFeatures, UpdateKind
from kvorum.metadata.requests.scram_requests import (
    SHA_256,
    SHA_512,
    AlterScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_metadata.worlds import World

SECRET = b"do-not-show-this"


def upsertion(user="alice", mechanism=SHA_256, iterations=4096):
    return ScramUpsertion(
        user=user, mechanism=mechanism, iterations=iterations,
        salt=SECRET, stored_key=SECRET, server_key=SECRET,
    )  # fmt: skip


def alter(world, *upsertions, deletions=()):
    asked = AlterScramCredentials(
        upsertions=upsertions,
        deletions=tuple(ScramDeletion(user=user, mechanism=kind) for user, kind in deletions),
    )
    return [(r.user, r.error, r.message) for r in world.ask(asked)]


def credentials_of(image):
    return {
        (user, mechanism): credential.iterations
        for user, of_user in image.scram_credentials.items()
        for mechanism, credential in of_user.items()
    }


def test_credentials_are_set_changed_and_removed_by_user_and_mechanism():
    world = World(brokers=())
    assert alter(world, upsertion()) == [("alice", ErrorCode.NONE, "")]
    alter(world, upsertion(mechanism=SHA_512, iterations=8192))
    alter(world, upsertion(iterations=5000), upsertion("bob"))
    expected = {("alice", SHA_256): 5000, ("alice", SHA_512): 8192, ("bob", SHA_256): 4096}
    assert credentials_of(world.image) == expected
    alter(world, deletions=[("alice", SHA_256), ("bob", SHA_256)])
    assert credentials_of(world.image) == {("alice", SHA_512): 8192}


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion(user=""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
def test_an_unsound_credential_is_refused_and_spoils_no_other(asked, error, message):
    world = World(brokers=())
    rows = alter(world, asked, upsertion("bob", iterations=16384))
    assert rows == [("bob", ErrorCode.NONE, ""), (asked.user, error, message)]
    assert credentials_of(world.image) == {("bob", SHA_256): 16384}


def test_a_user_may_stand_in_a_request_once_whatever_the_mechanisms():
    world = World(brokers=())
    alter(world, upsertion())
    rows = alter(world, upsertion(mechanism=SHA_512), deletions=[("alice", SHA_256)])
    words = "A user credential cannot be altered twice in the same request"
    assert rows == [("alice", ErrorCode.DUPLICATE_RESOURCE, words)]
    assert credentials_of(world.image) == {("alice", SHA_256): 4096}


def test_the_first_problem_of_a_user_counts():
    world = World(brokers=())
    # The deletion of what is not there comes before the second change of the same user.
    rows = alter(
        world,
        upsertion(),
        upsertion("bob", iterations=4095),
        upsertion("bob"),
        deletions=[("alice", SHA_256), ("alice", SHA_256)],
    )
    assert [(user, error) for user, error, _ in rows] == [
        ("alice", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ]
    alter(world, upsertion())
    rows = alter(world, upsertion(), deletions=[("alice", SHA_256)])
    assert [error for _, error, _ in rows] == [ErrorCode.DUPLICATE_RESOURCE]
    assert credentials_of(world.image) == {("alice", SHA_256): 4096}


def test_a_credential_that_is_not_there_cannot_be_removed():
    world = World(brokers=())
    alter(world, upsertion())
    ((_, error, message),) = alter(world, deletions=[("alice", SHA_512)])
    assert error is ErrorCode.RESOURCE_NOT_FOUND
    assert message == "Attempt to delete a user credential that does not exist"


def test_credentials_need_the_level_that_has_words_for_them():
    world = World(brokers=(), supported=limited(27))
    ((_, error, message),) = alter(world, upsertion())
    assert error is ErrorCode.UNSUPPORTED_VERSION
    assert "SCRAM credentials need metadata.version 28, it is 27" in message
    assert not world.image.scram_credentials


def test_the_level_goes_not_down_while_there_are_credentials():
    world = World(brokers=())
    down = UpdateFeatures(
        updates=(
            FeatureUpdate(name=METADATA_VERSION, max_level=27, kind=UpdateKind.SAFE_DOWNGRADE),
        )
    )
    alter(world, upsertion())
    (refused,) = world.ask(down)
    assert refused.error is ErrorCode.INVALID_UPDATE_VERSION
    assert "cannot record SCRAM credentials, such as those of 'alice'" in refused.message
    alter(world, deletions=[("alice", SHA_256)])
    (done,) = world.ask(down)
    assert done.error is ErrorCode.NONE


def test_log_and_snapshot_bring_the_same_credentials():
    world = World(brokers=())
    alter(world, upsertion(), upsertion("bob", SHA_512))
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(decode_record(encode_record(r)) for r in records_of(world.image))
    read = delta.apply(end_offset=world.image.end_offset, epoch=world.image.epoch)
    assert read.scram_credentials == world.image.scram_credentials


def test_nothing_that_is_shown_has_a_secret():
    world = World(brokers=())
    alter(world, upsertion())
    (record,) = [r for r in records_of(world.image) if isinstance(r, ScramCredential)]
    shown = content(world.image, "/scram_credentials/alice/1")
    assert shown["iterations"] == 4096 and shown["salt"] == "[hidden]"
    assert record_to_dict(record)["stored_key"] == "[hidden]"
    for text in (
        json.dumps(shown),
        json.dumps(record_to_dict(record)),
        repr(record),
        repr(upsertion()),
        repr(world.image),
    ):
        assert SECRET.decode() not in text and SECRET.hex() not in text
