"""Decisions of the controller, one module for each subject.

Each function takes an image and a request, and returns the records that carry the request out, and
the reply to send once they are committed. None of them changes anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kvorum.metadata.access.tokens import TokenKey
from kvorum.metadata.image.features import SUPPORTED, FeatureRange
from kvorum.metadata.image.records import Record

ReplyT = TypeVar("ReplyT", covariant=True)

RECORDS_PER_BATCH_MAX = 50_000
"""Records of one decision in one batch, all or nothing. Only a decision about all partitions of a
broker (it is fenced, unfenced, shut down, removed, or lost a directory), or about the ELRs of all
topics, may need more."""

RECORDS_PER_REQUEST_MAX = 10_000
"""Records of one request by default, as in Kafka; `kvorum.controller.request.records.max`."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[ReplyT]):
    """The records to write, and the reply to send once they are committed."""

    records: tuple[Record, ...]
    reply: ReplyT


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Delegation tokens of a cluster (delegation.token.*). key: None if they are off.

    max_lifetime_ms: of a token, however often it is renewed.
    expiry_time_ms: until a token expires that is not renewed.
    """

    key: TokenKey | None = None
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Inputs of a decision besides the image and the request.

    next_offset: offset of its first record.
    epoch: of the active controller. default_*: the cluster's defaults.
    supported_features: of this controller.
    voter_ids: of the quorum, ascending.
    wall_ms: the time, in ms since 1970.
    """

    next_offset: int
    rng: random.Random
    cluster_id: str
    default_num_partitions: int = 1
    default_replication_factor: int = 1
    supported_features: tuple[FeatureRange, ...] = SUPPORTED
    voter_ids: tuple[int, ...] = ()
    is_unclean_default: bool = False
    wall_ms: int = 0
    epoch: int = 0
    tokens: TokenRules = field(default_factory=TokenRules)
