"""The four kinds of error, never mixed.

(a) refusals are values: `Rejected(code, message)`;
(b) a peer broke the protocol: `WireError`, close that connection;
(c) damaged data: `CorruptData(path, position, reason)`;
(d) our own bug: `invariant()` raises `InvariantViolated`, the process exits and recovers from disk.
    It guards our own state alone, never a peer's bytes (see `peer_failures` for the unforeseen).

`ErrorCode` holds Apache Kafka's numbers; they are the vocabulary of every refusal.
"""

from __future__ import annotations

import enum
import errno
import resource
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class ErrorCode(enum.IntEnum):
    """Kafka's error codes (Errors.java, 4.4), as far as Kvorum uses them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


def error_code_of(code: int) -> ErrorCode:
    """The ErrorCode of a code that another node has sent; UNKNOWN_SERVER_ERROR for one that only
    newer nodes know."""
    try:
        return ErrorCode(int(code))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class Rejected:
    """A refusal as a value: the error code for the client, and a sentence with thing and value."""

    code: ErrorCode
    message: str = ""


class KvorumError(Exception):
    """Base class of the errors that Kvorum raises on purpose."""


class WireError(KvorumError):
    """A peer broke the protocol; the only possible reaction is to close its connection."""


class ConfigError(KvorumError):
    """A configuration that cannot be used; the message names key, value and remedy."""


class DirectoryUnusable(ConfigError):
    """A data directory that cannot be used because of its disk or its files, not of the
    configuration; the message names the file and the remedy."""


class QuorumNotReached(ConfigError):
    """No active controller took the node in within the time allowed. The configuration may be
    right, and a later start may succeed."""


class CorruptData(KvorumError):
    """Stored bytes that fail their checks.

    path: the file.
    position: the byte offset in it.
    reason: the check that failed.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class NewerFormat(CorruptData):
    """A file, perhaps undamaged, whose format is newer than this build can read."""


class NodeRefused(KvorumError):
    """The cluster refuses this node; the node exits with the given reason.

    may_succeed_later: the node's configuration may be right, so that another start is worth a try.
    """

    def __init__(self, message: str, *, may_succeed_later: bool = False) -> None:
        super().__init__(message)
        self.may_succeed_later = may_succeed_later


class InvariantViolated(KvorumError):
    """A bug of Kvorum. No code may catch it and go on; the process exits and recovers from disk."""


def disk_failure(failure: OSError) -> str:
    """A sentence on a failed disk call: the file, the error, and the remedy before a new start."""
    way_out = shortage_of(failure)
    if failure.errno in (errno.ENOSPC, errno.EDQUOT):
        way_out = "make room on that disk, then start again"
    elif not way_out:
        way_out = "see to that disk or its permissions, then start again"
    return f"{failure.filename}: {failure.strerror or failure}; {way_out}"


def shortage_of(failure: BaseException | None) -> str:
    """The limit that an OSError met, and the way out; "" for any other error. The process or the
    machine lacks something: no disk has failed, and what is on it is sound."""
    match failure.errno if isinstance(failure, OSError) else None:
        case errno.EMFILE:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return (
                f"the limit of open files, {limit:,}, is used up: raise it (LimitNOFILE= of the "
                "unit, ulimit -n of the shell), then start again"
            )
        case errno.ENFILE:
            return "the machine has no open file left: raise fs.file-max, then start again"
        case errno.ENOMEM:
            return (
                "there is no memory left: give the machine or the unit (MemoryMax=) more, then "
                "start again"
            )
    return ""


def invariant(condition: object, message: str) -> None:
    """Raise InvariantViolated(message) if condition is false; works with -O, unlike `assert`."""
    if not condition:
        raise InvariantViolated(message)


def required(value: T | None, message: str) -> T:
    """`value`, which must not be None; raises InvariantViolated(message) if it is."""
    if value is None:
        raise InvariantViolated(message)
    return value
