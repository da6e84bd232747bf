"""Delegation tokens: their records, images and snapshots, and the controller's decisions."""

from __future__ import annotations

import json

import pytest

from kvorum.metadata.access.tokens import FORGOTTEN_MAX, TokenKey, fingerprint
from kvorum.metadata.configs.secrets import record_to_dict
from kvorum.metadata.controller.decide import tokens as decide
from kvorum.metadata.controller.decide.tokens import TEXT_BYTES_MAX, remove_expired_tokens
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import METADATA_VERSION, limited
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import decode_record, encode_record
from kvorum.metadata.image.records import DelegationToken, RemoveDelegationToken
from kvorum.metadata.image.snapshot_job import records_of
from kvorum.metadata.inspect.export import _IMAGE_ROWS
from kvorum.metadata.inspect.export_schema import DELEGATION_TOKENS
from kvorum.metadata.inspect.tree import content
from kvorum.metadata.requests.controller_requests import FeatureUpdate, UpdateFeatures, UpdateKind
from kvorum.metadata.requests.token_requests import RenewDelegationToken
from kvorum.runtime.errors import ErrorCode, InvariantViolated, Rejected
from tests.test_metadata.tokens import DAY_MS, KEY, NOW_MS, TokenWorld, print_of, token


def code(reply: object) -> ErrorCode:
    assert isinstance(reply, Rejected), reply
    return reply.code


def image_of(*records):
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(decode_record(encode_record(record)) for record in records)
    return delta.apply(end_offset=len(records), epoch=1)


# Records.


def test_the_bytes_of_the_records_are_these() -> None:
    made = DelegationToken("User:a", "User:b", ("User:c",), 1, 3, 2, "id")
    assert encode_record(made).hex() == (
        "990a00a6557365723a61a6557365723a6291a6557365723a63010302a26964"
    )
    assert decode_record(encode_record(made)) == made
    removed = RemoveDelegationToken("id")
    assert encode_record(removed).hex() == "931a00a26964"
    assert decode_record(encode_record(removed)) == removed


def test_a_later_record_of_a_token_takes_the_place_of_the_first() -> None:
    later = token(expiration_timestamp_ms=NOW_MS + 2 * DAY_MS)
    image = image_of(token(), token("id-2"), later)
    assert dict(image.delegation_tokens) == {"id-1": later, "id-2": token("id-2")}
    gone = image_of(token(), token("id-2"), RemoveDelegationToken("id-1"))
    assert dict(gone.delegation_tokens) == {"id-2": token("id-2")}


def test_the_removal_of_a_token_that_is_not_there_stops_the_node() -> None:
    with pytest.raises(InvariantViolated, match="removal of an unknown delegation token"):
        image_of(RemoveDelegationToken("id-1"))


def test_a_snapshot_brings_the_same_tokens() -> None:
    image = image_of(token("b"), token("a", renewers=("User:bob", "User:carol")))
    records = list(records_of(image))
    assert [r.token_id for r in records if isinstance(r, DelegationToken)] == ["a", "b"]
    assert image_of(*records).delegation_tokens == image.delegation_tokens


def test_tree_export_and_dump_show_a_token_without_its_hmac() -> None:
    image = image_of(token(renewers=("User:bob",)))
    shown = content(image, "/delegation_tokens/id-1")
    (row,) = _IMAGE_ROWS[DELEGATION_TOKENS.name](image)
    assert shown["owner"] == row["owner"] == "User:alice"
    assert row["renewers"] == ["User:bob"]
    assert row["expiration_timestamp_ms"] == NOW_MS + DAY_MS
    assert set(row) == {column.name for column in DELEGATION_TOKENS.columns}
    for text in map(json.dumps, (shown, row, record_to_dict(token()))):
        assert KEY.password("id-1") not in text and KEY.hmac("id-1").hex() not in text


# The HMAC.


def test_the_hmac_is_that_of_apache_kafka() -> None:
    """The value is that of Java's HmacSHA512, which Kafka uses, over the bytes of the id."""
    key = TokenKey("secret")
    assert key.password("WkFqUpcPT9aO7JvmHdBmhw") == (
        "Y/TO9UBg8ZDsIltrIWesmsjCFb+WFHfwwME6E4c/pfkXyoRSPBpK3gYbwfJ5sW8fy4Gpd1ZxA91GNSUM2FIdjw=="
    )
    assert len(key.hmac("a")) == 64


def test_a_fingerprint_finds_its_token_and_no_other() -> None:
    key = TokenKey("other key")
    tokens = {each: token(each) for each in ("a", "b")}
    assert key.find(tokens, fingerprint(key.hmac("b"))) is tokens["b"]
    assert key.find(tokens, fingerprint(KEY.hmac("b"))) is None
    assert key.find(tokens, key.hmac("b")) is None
    assert key.find(tokens, b"") is None
    assert key.find({"a": tokens["a"]}, fingerprint(key.hmac("b"))) is None


def test_tokens_that_are_gone_are_forgotten() -> None:
    key = TokenKey("key")
    many = {str(number): token(str(number)) for number in range(FORGOTTEN_MAX + 2)}
    assert key.find(many, fingerprint(key.hmac("7"))) is many["7"]
    assert len(key._ids) == len(many)
    few = {"y": token("y")}
    assert key.find(few, fingerprint(key.hmac("y"))) is few["y"]
    assert len(key._ids) == 1


# Creation.


def test_a_token_lives_a_day_and_can_be_renewed_for_a_week() -> None:
    world = TokenWorld()
    made = world.create(renewers=("User:bob",))
    (found,) = world.image.delegation_tokens.values()
    assert found == token(made.token_id, renewers=("User:bob",))
    assert (made.issue_timestamp_ms, made.expiration_timestamp_ms, made.max_timestamp_ms) == (
        NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS,
    )  # fmt: skip
    assert world.create().token_id != made.token_id


@pytest.mark.parametrize(
    ("asked_ms", "expires_ms", "max_ms"),
    [
        (-1, DAY_MS, 7 * DAY_MS),
        (0, DAY_MS, 7 * DAY_MS),
        (1_000, 1_000, 1_000),
        (2 * DAY_MS, DAY_MS, 2 * DAY_MS),
        (1 << 62, DAY_MS, 7 * DAY_MS),
    ],
)
def test_the_life_that_is_asked_for_may_be_shorter(asked_ms, expires_ms, max_ms) -> None:
    made = TokenWorld().create(max_lifetime_ms=asked_ms)
    assert made.expiration_timestamp_ms == NOW_MS + expires_ms
    assert made.max_timestamp_ms == NOW_MS + max_ms


@pytest.mark.parametrize(
    "changed",
    [
        {"owner": "Group:alice"},
        {"owner": "User:"},
        {"renewers": ("User:bob", "Role:admin")},
        {"renewers": ("",)},
    ],
)
def test_owner_and_renewers_must_be_users(changed) -> None:
    world = TokenWorld()
    assert code(world.create(**changed)) is ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not world.image.delegation_tokens


def test_the_renewers_of_a_token_are_bounded() -> None:
    world = TokenWorld()
    long = "User:" + "x" * (TEXT_BYTES_MAX - 25)
    assert not isinstance(world.create(renewers=(long,)), Rejected)
    assert code(world.create(renewers=(long + "y",))) is ErrorCode.POLICY_VIOLATION


# Renewal.


def test_owner_and_renewers_renew_a_token_but_the_requester_does_not() -> None:
    world = TokenWorld()
    made = world.create("User:carol", renewers=("User:bob",))
    world.wall_ms += 3_600_000
    for who in ("User:carol", "User:bob"):
        reply = world.renew(made.token_id, who)
        assert reply.expiration_timestamp_ms == NOW_MS + 3_600_000 + DAY_MS
    for who in ("User:alice", "User:mallory"):
        reply = world.renew(made.token_id, who)
        assert code(reply) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    (found,) = world.image.delegation_tokens.values()
    assert found.expiration_timestamp_ms == NOW_MS + 3_600_000 + DAY_MS
    assert (found.requester, found.issue_timestamp_ms) == ("User:alice", NOW_MS)


@pytest.mark.parametrize(("asked_ms", "period_ms"), [(0, DAY_MS), (60, 60), (1 << 62, DAY_MS)])
def test_a_renewal_is_for_the_period_asked_for_or_the_default(asked_ms, period_ms) -> None:
    world = TokenWorld()
    made = world.create()
    reply = world.renew(made.token_id, period_ms=asked_ms)
    assert reply.expiration_timestamp_ms == NOW_MS + period_ms


def test_no_renewal_goes_beyond_the_max_timestamp() -> None:
    world = TokenWorld()
    made = world.create(max_lifetime_ms=DAY_MS + 5)
    world.wall_ms += 1_000
    assert world.renew(made.token_id).expiration_timestamp_ms == NOW_MS + DAY_MS + 5


def test_a_token_that_has_expired_is_not_renewed() -> None:
    world = TokenWorld()
    made = world.create()
    world.wall_ms = NOW_MS + DAY_MS
    assert not isinstance(world.renew(made.token_id, period_ms=1), Rejected)
    world.wall_ms += 2
    assert code(world.renew(made.token_id)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    # As in Kafka, users who may not renew the token get the same error.
    reply = world.renew(made.token_id, "User:mallory")
    assert code(reply) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_an_hmac_of_no_token_is_not_found() -> None:
    world = TokenWorld()
    world.create()
    assert code(world.renew("another id")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert code(world.expire("another id")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


# Expiry.


def test_a_negative_period_removes_the_token_now() -> None:
    world = TokenWorld()
    made = world.create(renewers=("User:bob",))
    refused = world.expire(made.token_id, "User:mallory")
    assert code(refused) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert world.expire(made.token_id, "User:bob").expiration_timestamp_ms == NOW_MS
    assert not world.image.delegation_tokens
    assert code(world.expire(made.token_id)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_another_period_lets_it_expire_then_and_not_after_its_max_timestamp() -> None:
    world = TokenWorld()
    made = world.create()
    assert world.expire(made.token_id, period_ms=5).expiration_timestamp_ms == NOW_MS + 5
    reply = world.expire(made.token_id, period_ms=(1 << 63) - 1)
    assert reply.expiration_timestamp_ms == NOW_MS + 7 * DAY_MS
    assert world.expire(made.token_id, period_ms=0).expiration_timestamp_ms == NOW_MS
    world.wall_ms += 1
    reply = world.expire(made.token_id, period_ms=1_000)
    assert code(reply) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert world.expire(made.token_id).expiration_timestamp_ms == NOW_MS + 1
    assert not world.image.delegation_tokens


def test_expired_tokens_are_removed_and_no_others(monkeypatch) -> None:
    monkeypatch.setattr(decide, "REMOVED_AT_ONCE_MAX", 2)
    old = [token(each, expiration_timestamp_ms=NOW_MS) for each in "abc"]
    beyond = token("d", max_timestamp_ms=NOW_MS)
    image = image_of(*old, beyond, token("e"))
    assert remove_expired_tokens(image, NOW_MS).records == ()
    done = remove_expired_tokens(image, NOW_MS + 1)
    assert ([record.token_id for record in done.records], done.reply) == (["a", "b"], True)
    rest = image_of(*old, beyond, token("e"), *done.records)
    done = remove_expired_tokens(rest, NOW_MS + 1)
    assert ([record.token_id for record in done.records], done.reply) == (["c", "d"], False)


# What they need.


def test_without_a_key_nothing_is_decided() -> None:
    world = TokenWorld(secret="")
    for reply in (world.create(), world.renew("a"), world.expire("a")):
        assert code(reply) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_tokens_need_the_level_that_has_words_for_them() -> None:
    world = TokenWorld(supported=limited(29))
    reply = world.create()
    assert code(reply) is ErrorCode.UNSUPPORTED_VERSION
    assert "delegation tokens need metadata.version 30, it is 29" in reply.message
    assert code(world.renew("a")) is ErrorCode.UNSUPPORTED_VERSION


def test_the_level_goes_not_down_while_there_are_tokens() -> None:
    world = TokenWorld()
    down = UpdateFeatures(
        updates=(
            FeatureUpdate(name=METADATA_VERSION, max_level=29, kind=UpdateKind.SAFE_DOWNGRADE),
        )
    )
    made = world.create()
    (refused,) = world.ask(down)
    assert "cannot record delegation tokens, such as those of User:alice" in refused.message
    world.expire(made.token_id)
    (done,) = world.ask(down)
    assert done.error is ErrorCode.NONE


def test_the_key_is_in_no_text_of_a_config() -> None:
    world = TokenWorld(secret="do not show")
    assert "do not show" not in repr(world.controller._config) + repr(world.controller._tokens)
    request = RenewDelegationToken(requester="User:a", fingerprint=print_of("a"))
    assert KEY.hmac("a").hex() not in repr(request)
