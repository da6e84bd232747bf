"""The records of ACLs: their bytes, images, deltas and snapshots."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.access.authorizer import Authorizer
from kvorum.metadata.configs.secrets import record_to_dict
from kvorum.metadata.image.acl import AclOperation, PatternType, Permission, ResourceType
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record, encode_record
from kvorum.metadata.image.records import (
    AccessControlEntry,
    Record,
    RemoveAccessControlEntry,
)
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.inspect.export import _IMAGE_ROWS
from kvorum.metadata.inspect.export_schema import ACLS
from kvorum.metadata.inspect.tree import content
from kvorum.runtime.errors import InvariantViolated
from kvorum.runtime.ids import uuid_text
from tests.test_metadata.acls import acl

A, B = b"a" * 16, b"b" * 16
READ = acl()
DENY = acl("pay", pattern_type=PatternType.PREFIXED, permission=Permission.DENY)


def delta_of(image: ClusterImage, *records: Record) -> Delta:
    delta = Delta(image)
    delta.replay_all(decode_record(encode_record(record)) for record in records)
    return delta


def image_of(*records: Record) -> ClusterImage:
    return delta_of(EMPTY_IMAGE, *records).apply(end_offset=len(records), epoch=1)


def test_the_bytes_of_the_records_are_these() -> None:
    created = AccessControlEntry.of(A, DENY)
    assert encode_record(created).hex() == (
        "9a1200c410" + "61" * 16 + "02a370617904aa557365723a616c696365a12a0302"
    )
    assert decode_record(encode_record(created)) == created
    removed = RemoveAccessControlEntry(A)
    assert encode_record(removed).hex() == "931300c410" + "61" * 16
    assert decode_record(encode_record(removed)) == removed


@pytest.mark.parametrize(("field", "number"), [(3, 8), (5, 5), (8, 16), (9, 4)])
def test_a_number_without_a_meaning_is_refused_and_not_skipped(field: int, number: int) -> None:
    fields = list(msgpack.unpackb(encode_record(AccessControlEntry.of(A, READ))))
    fields[field] = number
    with pytest.raises(UnreadableRecord, match=f"malformed AccessControlEntry: {number} is not"):
        decode_record(msgpack.packb(fields))


def test_an_image_finds_acls_by_id_and_ids_by_acl() -> None:
    image = image_of(AccessControlEntry.of(A, READ), AccessControlEntry.of(B, DENY))
    assert dict(image.acls) == {A: READ, B: DENY}
    assert dict(image.acl_ids) == {READ: A, DENY: B}
    without = delta_of(image, RemoveAccessControlEntry(A)).apply(end_offset=3, epoch=1)
    assert dict(without.acls) == {B: DENY}
    assert dict(without.acl_ids) == {DENY: B}
    assert dict(image.acls) == {A: READ, B: DENY}


@pytest.mark.parametrize(
    "record",
    [AccessControlEntry.of(A, DENY), AccessControlEntry.of(B, READ), RemoveAccessControlEntry(B)],
    ids=["the id exists", "the ACL exists", "no such id"],
)
def test_a_record_that_does_not_fit_stops_the_node(record: Record) -> None:
    with pytest.raises(InvariantViolated):
        delta_of(image_of(AccessControlEntry.of(A, READ)), record)


def test_a_delta_names_what_is_new_and_what_is_gone_but_nothing_in_between() -> None:
    image = image_of(AccessControlEntry.of(A, READ))
    assert Delta(image).is_empty
    delta = delta_of(image, RemoveAccessControlEntry(A), AccessControlEntry.of(B, DENY))
    assert (delta.added_acls, delta.removed_acls, delta.is_empty) == ([DENY], [READ], False)
    delta = delta_of(image, AccessControlEntry.of(B, DENY), RemoveAccessControlEntry(B))
    assert (delta.added_acls, delta.removed_acls) == ([], [])
    delta = delta_of(image, RemoveAccessControlEntry(A), AccessControlEntry.of(B, READ))
    assert (delta.added_acls, delta.removed_acls) == ([], [])
    assert Delta.of_whole(image).added_acls == [READ]
    assert not Delta.of_whole(image).is_empty


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40))
def test_an_authorizer_that_follows_deltas_answers_as_one_that_has_the_image(
    steps: list[tuple[int, bool]],
) -> None:
    following = Authorizer()
    image = EMPTY_IMAGE
    delta = Delta(image)
    ids = iter(range(1, 100))
    present: dict[int, bytes] = {}
    for name, is_end_of_delta in steps:
        if name in present:
            delta.replay(RemoveAccessControlEntry(present.pop(name)))
        else:
            present[name] = next(ids).to_bytes(16, "big")
            delta.replay(AccessControlEntry.of(present[name], acl(f"t{name}")))
        if is_end_of_delta:
            following.change(added=delta.added_acls, removed=delta.removed_acls)
            image = delta.apply(end_offset=image.end_offset + 1, epoch=1)
            delta = Delta(image)
            for number in range(6):
                assert following.is_allowed(
                    "alice", "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, f"t{number}"
                ) == (acl(f"t{number}") in image.acl_ids)


def test_a_snapshot_brings_the_same_acls() -> None:
    image = image_of(AccessControlEntry.of(B, DENY), AccessControlEntry.of(A, READ))
    records = list(records_of(image))
    assert [record.id for record in records if isinstance(record, AccessControlEntry)] == [A, B]
    read = image_of(*records)
    assert (read.acls, read.acl_ids) == (image.acls, image.acl_ids)


def test_the_tree_and_an_export_name_the_enums_and_a_dump_has_their_numbers() -> None:
    image = image_of(AccessControlEntry.of(A, DENY))
    shown = {
        "resource_type": "TOPIC", "resource_name": "pay", "pattern_type": "PREFIXED",
        "principal": "User:alice", "host": "*", "operation": "READ", "permission": "DENY",
    }  # fmt: skip
    assert content(image, "/acls") == {uuid_text(A): shown}
    (row,) = _IMAGE_ROWS["acls"](image)
    assert row == {"acl_id": uuid_text(A), **shown}
    assert set(row) == {column.name for column in ACLS.columns}
    dump = json.dumps(record_to_dict(AccessControlEntry.of(A, DENY)) | {"id": ""})
    assert json.loads(dump)["operation"] == 3
