"""The controller's state and rules: two images, sessions, and the decision of each request.

`committed` is the image of the log up to the high watermark. Every controller keeps it, so a
standby becomes active without loading anything. `speculative` is the committed image plus all
decisions of this active controller that are not committed yet. A controller that loses leadership
drops it; there is no rollback.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvorum.metadata.access.tokens import token_key
from kvorum.metadata.configs.group_bounds import GroupBounds
from kvorum.metadata.controller.core.broker_sessions import BrokerSessions
from kvorum.metadata.controller.core.metrics import ControllerMetrics
from kvorum.metadata.controller.decide import (
    RECORDS_PER_REQUEST_MAX,
    Context,
    Decision,
    TokenRules,
)
from kvorum.metadata.controller.decide.acls import create_acls, delete_acls
from kvorum.metadata.controller.decide.broker_fencing import (
    CHUNK_PARTITIONS,
    BrokerFencing,
    begin_fencing,
    fence_next_chunk,
)
from kvorum.metadata.controller.decide.brokers import heartbeat, register
from kvorum.metadata.controller.decide.configs import alter_configs
from kvorum.metadata.controller.decide.directories import assign_replicas
from kvorum.metadata.controller.decide.elections import Sweep, begin_sweep, elect_leaders, sweep
from kvorum.metadata.controller.decide.eligible_brokers import EligibleBrokers, eligible_brokers
from kvorum.metadata.controller.decide.elr_clearing import with_elr_cleared
from kvorum.metadata.controller.decide.features import (
    bootstrap,
    register_controller,
    update_features,
)
from kvorum.metadata.controller.decide.isr import alter_partition
from kvorum.metadata.controller.decide.partitions import create_partitions
from kvorum.metadata.controller.decide.producer_ids import allocate_producer_ids
from kvorum.metadata.controller.decide.quotas import alter_client_quotas
from kvorum.metadata.controller.decide.reassignment import alter_reassignments, list_reassignments
from kvorum.metadata.controller.decide.scram import alter_scram_credentials
from kvorum.metadata.controller.decide.tokens import (
    create_delegation_token,
    expire_delegation_token,
    remove_expired_tokens,
    renew_delegation_token,
)
from kvorum.metadata.controller.decide.topics import create_topics, delete_topics
from kvorum.metadata.controller.decide.unregister import unregister, unregister_controller
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import METADATA_VERSION, SUPPORTED, FeatureRange, level_of
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.record_codec import encode_records
from kvorum.metadata.image.records import BrokerRegistrationChange, Record
from kvorum.metadata.requests.acl_requests import (
    CreateAcls,
    DeleteAcls,
)
from kvorum.metadata.requests.config_requests import (
    AlterClientQuotas,
    AlterConfigs,
)
from kvorum.metadata.requests.controller_requests import (
    AllocateProducerIds,
    AlterPartition,
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Heartbeat,
    HeartbeatReply,
    ListReassignments,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    RegisteredBroker,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
    UnregisteredBroker,
    UpdateFeatures,
)
from kvorum.metadata.requests.directory_requests import AssignReplicas
from kvorum.metadata.requests.scram_requests import AlterScramCredentials
from kvorum.metadata.requests.token_requests import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from kvorum.runtime.errors import (
    ErrorCode,
    InvariantViolated,
    KvorumError,
    Rejected,
    invariant,
    required,
)

Request = (
    RegisterBrokerRequest
    | Heartbeat
    | CreateTopics
    | DeleteTopics
    | AlterPartition
    | AllocateProducerIds
    | ElectLeaders
    | AlterConfigs
    | AlterClientQuotas
    | AlterScramCredentials
    | CreateAcls
    | DeleteAcls
    | CreateDelegationToken
    | RenewDelegationToken
    | ExpireDelegationToken
    | UpdateFeatures
    | RegisterControllerRequest
    | UnregisterBrokerRequest
    | UnregisterControllerRequest
    | CreatePartitions
    | AlterReassignments
    | ListReassignments
    | AssignReplicas
)

Reply = object
"""The reply that `metadata.rpc.calls` has for the request, or Rejected."""

BYTES_PER_REQUEST_MAX = 7 << 20
"""Bytes of the records of a client's request. With their frames they are one batch, which must fit
a segment of the metadata log (8 MiB at least): the log takes no other, and the node would exit."""

_OF_CLIENTS = (
    AlterClientQuotas,
    AlterConfigs,
    AlterReassignments,
    AlterScramCredentials,
    CreateAcls,
    CreateDelegationToken,
    CreatePartitions,
    CreateTopics,
)
"""Requests whose records have texts or lists of a client."""

_TOO_LARGE = Rejected(
    ErrorCode.POLICY_VIOLATION,
    f"the request makes more than {BYTES_PER_REQUEST_MAX} bytes of metadata, of which nothing is "
    "written; send several requests",
)

SHUT_DOWN = "it has shut down in good order"
"""Cause of the fencing of a broker that has asked to shut down."""


class DecisionFailed(KvorumError):
    """A bug of ours: an unexpected exception before anything was decided. The request is refused,
    and the controller goes on.

    Bad sequence otherwise: 1. The active controller exits. 2. The client sends the request to the
    next one, which exits too. 3. No quorum is left.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(GroupBounds):
    """Configs of a controller, and the bounds of groups' configs. They are named like Kafka's, with
    underscores for dots; times in ms.

    broker_session_timeout_ms: time without a heartbeat after which a broker is fenced.
    broker_stream_grace_ms: time for a broken heartbeat stream to come back before the broker is
        fenced, long before its session timeout (Kvorum's own).
    unclean_leader_election_enable: for topics if neither they nor the cluster default sets it.
    delete_topic_enable: if False, topics cannot be deleted.
    auto_leader_rebalance_enable: elect preferred leaders again every
        leader_imbalance_check_interval_seconds.
    delegation_token_secret_key: "" if delegation tokens are off.
    delegation_token_expiry_check_interval_ms: between two removals of expired tokens; for the other
        two see `decide.TokenRules`.
    kvorum_controller_request_records_max: records that a request may add to the log, if it changes
        configs, quotas, credentials or ACLs, or reassigns partitions.
    """

    broker_session_timeout_ms: int = 2_000
    broker_stream_grace_ms: int = 100
    num_partitions: int = 1
    default_replication_factor: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    delegation_token_secret_key: str = field(default="", repr=False)
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    kvorum_controller_request_records_max: int = RECORDS_PER_REQUEST_MAX


class Controller:
    """State and rules of one controller, active or standby."""

    def __init__(
        self,
        config: ControllerConfig,
        *,
        cluster_id: str,
        rng: random.Random,
        supported_features: tuple[FeatureRange, ...] = SUPPORTED,
        fencing_chunk: int = CHUNK_PARTITIONS,
    ) -> None:
        """fencing_chunk: partitions that are decided at a time when a broker is fenced."""
        self._config = config
        self._cluster_id = cluster_id
        self._rng = rng
        self.committed: ClusterImage = EMPTY_IMAGE
        self.speculative: ClusterImage | None = None
        self.epoch = -1
        self._supported_features = supported_features
        #: The voters of the quorum; the driver keeps them current.
        self.voter_ids: tuple[int, ...] = ()
        #: Appended behind the feature levels of a new cluster.
        self.first_records: tuple[Record, ...] = ()
        self._fencing_chunk = fencing_chunk
        self._fencing: BrokerFencing | None = None
        self._fencing_causes: dict[int, str] = {}
        self._tokens = TokenRules(
            key=token_key(config.delegation_token_secret_key),
            max_lifetime_ms=config.delegation_token_max_lifetime_ms,
            expiry_time_ms=config.delegation_token_expiry_time_ms,
        )
        self.metrics = ControllerMetrics()
        self.sessions = BrokerSessions(
            session_timeout_ms=config.broker_session_timeout_ms,
            stream_grace_ms=config.broker_stream_grace_ms,
        )

    @property
    def is_active(self) -> bool:
        return self.speculative is not None

    def claim(self, epoch: int, next_offset: int, now_ms: int) -> None:
        """Become active: everything before next_offset is committed and replayed in the committed
        image."""
        invariant(
            self.committed.end_offset == next_offset,
            f"claim at {next_offset} over an image that ends at {self.committed.end_offset}",
        )
        self.epoch = epoch
        self.metrics.claims += 1
        self.speculative = self.committed
        self._fencing = None
        brokers = self.committed.brokers.values()
        self.sessions.reset(
            {b.broker_id: b.broker_epoch for b in brokers if not b.is_fenced},
            now_ms,
            fenced=(b.broker_id for b in brokers if b.is_fenced),
        )

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version after all decisions so far."""
        return level_of(self._active_image().features, METADATA_VERSION)

    def begin(self) -> tuple[Record, ...]:
        """The records to append right after the claim, already applied to the speculative image: of
        a new cluster its feature levels and `first_records`, of any other none."""
        levels = bootstrap(self._active_image(), self._context())
        records: tuple[Record, ...] = (*levels, *self.first_records) if levels else ()
        self._advance(records)
        return records

    def skip_to(self, next_offset: int) -> None:
        """Move to next_offset: the quorum has appended records before it that do not concern the
        image."""
        image = self._active_image()
        if image.end_offset != next_offset:
            invariant(
                image.end_offset < next_offset,
                f"the log ends at {next_offset}, behind the speculative image {image.end_offset}",
            )
            self.speculative = dataclasses.replace(image, end_offset=next_offset, epoch=self.epoch)

    def renounce(self) -> None:
        """Become a standby: decisions that are not committed are dropped."""
        self._fencing = None
        self.speculative = None

    def note_committed(self, image: ClusterImage) -> None:
        """Adopt `image` as the committed image."""
        invariant(
            image.end_offset >= self.committed.end_offset,
            f"the committed image would go back from {self.committed.end_offset} "
            f"to {image.end_offset}",
        )
        self.committed = image

    def decide(self, request: Request, now_ms: int, *, wall_ms: int = 0) -> Decision[Reply]:
        """Decide a request on the speculative image, and apply the decision's records to it.

        now_ms: of the monotonic clock.
        wall_ms: since 1970, for times that records have.
        Raises DecisionFailed; then nothing has changed.
        """
        image = self._active_image()
        try:
            decided = self._decide(image, request, now_ms, wall_ms)
            records = with_elr_cleared(image, decided.records)
            if isinstance(request, _OF_CLIENTS) and _bytes_of(records) > BYTES_PER_REQUEST_MAX:
                return Decision((), _TOO_LARGE)
        except InvariantViolated:
            raise
        except Exception as bug:
            raise DecisionFailed(f"no decision about {type(request).__name__}: {bug!r}") from bug
        self._note_session(request, decided.reply, now_ms)
        self._apply_records(records)
        return Decision(records, decided.reply)

    def sweep_leaders(
        self, at: Sweep | None, *, only_missing: bool = False
    ) -> Decision[Sweep | None]:
        """Decide one chunk of the sweep, the periodic walk over all partitions for elections that
                are due.

        at: where the last chunk ended, None to start a walk.
        only_missing: elect only for partitions without a leader. The reply is where the next chunk
            starts.
        """
        image = self._active_image()
        decision = sweep(
            image,
            begin_sweep(image) if at is None else at,
            self._eligible_brokers(image),
            with_preferred=self._config.auto_leader_rebalance_enable and not only_missing,
        )
        self._apply_records(decision.records)
        return decision

    def remove_expired_tokens(self, wall_ms: int) -> Decision[bool]:
        """Remove expired delegation tokens. The reply is true if there may be more of them."""
        decision = remove_expired_tokens(self._active_image(), wall_ms)
        self._apply_records(decision.records)
        return decision

    @property
    def token_check_interval_ms(self) -> int:
        return self._config.delegation_token_expiry_check_interval_ms

    @property
    def leader_check_interval_ms(self) -> int:
        return self._config.leader_imbalance_check_interval_seconds * 1000

    @property
    def _is_unclean_default(self) -> bool:
        return self._config.unclean_leader_election_enable

    @property
    def is_fencing(self) -> bool:
        """True if a broker is being fenced and some of its partitions are not decided yet."""
        return self._fencing is not None

    def fence_next(self, now_ms: int) -> tuple[dict[int, str], tuple[Record, ...]] | None:
        """Fence the brokers whose sessions have ended, or continue to fence them. Returns (the
        cause by id of those that are fenced by now, records of one chunk), None if there is
        nothing to do.

        One chunk at a time: each chunk changes the speculative image, and its records must be in
        the log before the next decision.
        """
        while True:
            fencing = self._fencing = self._with_expired(self._fencing, now_ms)
            if fencing is None:
                return None
            image = self._active_image()
            decision = fence_next_chunk(image, fencing, is_unclean_default=self._is_unclean_default)
            self._fencing = decision.reply
            if decision.records or decision.reply is not None:
                self._advance(decision.records)
                fenced = {
                    record.broker_id: self._fencing_causes[record.broker_id]
                    for record in decision.records
                    if isinstance(record, BrokerRegistrationChange)
                }
                return fenced, decision.records
            # The brokers were fenced or unregistered meanwhile, or have new processes.

    def _with_expired(self, under_way: BrokerFencing | None, now_ms: int) -> BrokerFencing | None:
        """The fencing under way, joined by the brokers whose sessions have ended since."""
        image = self._active_image()
        causes = dict(self.sessions.expired(now_ms))
        for broker_id in causes:
            self.sessions.drop(broker_id)
        fencing = begin_fencing(image, causes, chunk=self._fencing_chunk)
        known = {} if under_way is None else under_way.epochs
        if fencing is None or fencing.epochs.items() <= known.items():
            return under_way  # a heartbeat came late, and its session has ended, too
        for broker_id in fencing.epochs:
            is_over = image.brokers[broker_id].in_controlled_shutdown
            self.metrics.timed_out_heartbeats += not is_over
            if is_over:
                causes[broker_id] = SHUT_DOWN
        self._fencing_causes |= causes
        return fencing if under_way is None else under_way.joined_by(fencing)

    def _note_session(self, request: Request, reply: Reply, now_ms: int) -> None:
        """Update the session of the broker that the request concerns."""
        match request, reply:
            case Heartbeat(), HeartbeatReply():
                self.sessions.touch(
                    request.broker_id, request.broker_epoch, request.metadata_offset, now_ms
                )
            case RegisterBrokerRequest(), RegisteredBroker():
                self.sessions.touch(request.broker_id, reply.broker_epoch, -1, now_ms)
            case UnregisterBrokerRequest(), UnregisteredBroker():
                self.sessions.forget(request.broker_id)

    def _decide(
        self, image: ClusterImage, request: Request, now_ms: int, wall_ms: int
    ) -> Decision[Reply]:
        """Decide a request. Changes nothing, so that a bug here costs one request."""
        most = self._config.kvorum_controller_request_records_max
        match request:
            case Heartbeat():
                return heartbeat(image, request, is_unclean_default=self._is_unclean_default)
            case RegisterBrokerRequest():
                return register(
                    image,
                    request,
                    self._context(),
                    has_session=self.sessions.is_alive(request.broker_id, now_ms),
                    may_be_alive=self.sessions.may_be_alive(request.broker_id, now_ms),
                )
            case CreateTopics():
                return create_topics(image, request, self._context())
            case DeleteTopics():
                return delete_topics(image, request, is_enabled=self._config.delete_topic_enable)
            case AlterPartition():
                leaving = () if self._fencing is None else self._fencing.epochs
                return alter_partition(
                    image, request, self._eligible_brokers(image), leaving=leaving
                )
            case AllocateProducerIds():
                return allocate_producer_ids(image, request)
            case ElectLeaders():
                return elect_leaders(image, request, self._eligible_brokers(image))
            case CreatePartitions():
                return create_partitions(image, request, self._context())
            case AlterReassignments():
                return alter_reassignments(
                    image, request, self._eligible_brokers(image), records_max=most
                )
            case ListReassignments():
                return list_reassignments(image, request)
            case AssignReplicas():
                return assign_replicas(image, request, self._eligible_brokers(image))
            case AlterConfigs():
                return alter_configs(image, request, self._config, records_max=most)
            case AlterClientQuotas():
                return alter_client_quotas(image, request, records_max=most)
            case AlterScramCredentials():
                return alter_scram_credentials(image, request, records_max=most)
            case CreateAcls():
                return create_acls(image, request, self._context(), records_max=most)
            case DeleteAcls():
                return delete_acls(image, request, records_max=most)
            case CreateDelegationToken():
                return create_delegation_token(image, request, self._context(wall_ms))
            case RenewDelegationToken():
                return renew_delegation_token(image, request, self._context(wall_ms))
            case ExpireDelegationToken():
                return expire_delegation_token(image, request, self._context(wall_ms))
            case UpdateFeatures():
                return update_features(image, request, self._context())
            case UnregisterBrokerRequest():
                has_session = self.sessions.is_alive(request.broker_id, now_ms)
                return unregister(
                    image,
                    request,
                    has_session=has_session,
                    is_unclean_default=self._is_unclean_default,
                )
            case RegisterControllerRequest():
                return register_controller(image, request, self._context())
            case UnregisterControllerRequest():
                return unregister_controller(image, request, self._context())

    def _eligible_brokers(self, image: ClusterImage) -> EligibleBrokers:
        return eligible_brokers(image, is_unclean_default=self._is_unclean_default)

    def _advance(self, records: Sequence[Record]) -> None:
        if not records:
            return
        self.metrics.note_records(records)
        image = self._active_image()
        delta = Delta(image)
        delta.replay_all(records)
        self.speculative = delta.apply(end_offset=image.end_offset + len(records), epoch=self.epoch)

    def _apply_records(self, records: Sequence[Record]) -> None:
        """Apply the records of other decisions; a fencing in progress must know them."""
        self._advance(records)
        if self._fencing is not None:
            self._fencing = self._fencing.note(records)

    def _active_image(self) -> ClusterImage:
        return required(self.speculative, "a standby controller decides nothing")

    def _context(self, wall_ms: int = 0) -> Context:
        return Context(
            next_offset=self._active_image().end_offset,
            rng=self._rng,
            cluster_id=self._cluster_id,
            default_num_partitions=self._config.num_partitions,
            default_replication_factor=self._config.default_replication_factor,
            supported_features=self._supported_features,
            voter_ids=self.voter_ids,
            wall_ms=wall_ms,
            epoch=self.epoch,
            tokens=self._tokens,
            is_unclean_default=self._is_unclean_default,
        )


def _bytes_of(records: Sequence[Record]) -> int:
    return sum(map(len, encode_records(records)))
