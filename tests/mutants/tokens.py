"""Rules of delegation tokens, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

DECIDE = "kvorum/metadata/controller/decide/tokens.py"
RECORDS = "kvorum/metadata/image/records.py"
KEY = "kvorum/metadata/access/tokens.py"
FEATURES = "kvorum/metadata/controller/decide/features.py"
SNAPSHOT = "kvorum/metadata/image/snapshot_job.py"
CORE = "kvorum/metadata/controller/core/quorum_controller.py"
CREATE = "kvorum/broker/api/create_delegation_token.py"
DESCRIBE = "kvorum/broker/api/describe_delegation_token.py"
SHARED = "kvorum/broker/api/delegation_tokens.py"
CONTEXT = "kvorum/broker/api/context.py"
LOGINS = "kvorum/broker/sasl/core/token_logins.py"
SCRAM = "kvorum/broker/sasl/core/scram.py"
SESSIONS = "kvorum/broker/sasl/core/authentication.py"

_OF_THE_CONTROLLER: tuple[tuple[str, str, str, str, str], ...] = (
    ("tokens-without-a-key", "without a key there are no tokens", DECIDE,
     "    if context.tokens.key is None:\n", "    if False:\n"),
    ("tokens-below-their-level", "no token is written below the level that supports it", DECIDE,
     "    if level < TOKEN_LEVEL:\n", "    if False:\n"),
    ("level-that-loses-tokens", "a downgrade is refused while there are tokens", FEATURES,
     "    if level < TOKEN_LEVEL and image.delegation_tokens:\n", "    if False:\n"),
    ("token-of-a-group", "owner and renewers are users", DECIDE,
     "        if not principal.startswith(USER_PREFIX) or principal == USER_PREFIX:\n",
     "        if False:\n"),
    ("token-of-any-length", "a thousand tokens fit a frame of a snapshot", DECIDE,
     "    if sum(len(principal.encode()) for principal in principals) > TEXT_BYTES_MAX:\n",
     "    if False:\n"),
    ("token-beyond-the-maximum", "a token lives no longer than the cluster allows", DECIDE,
     "        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)\n",
     "        lifetime_ms = request.max_lifetime_ms\n"),
    ("token-never-expires", "a token expires unless it is renewed", DECIDE,
     "now_ms + min(lifetime_ms, context.tokens.expiry_time_ms),", "now_ms + lifetime_ms,"),
    ("renewal-of-the-dead", "a token that has expired is not renewed", DECIDE,
     "    if token.is_expired(context.wall_ms):\n        return Decision((), _expired(token))\n"
     "    if not token.may_be_renewed_by(request.requester):\n",
     "    if not token.may_be_renewed_by(request.requester):\n"),
    ("renewal-beyond-the-period", "a renewal is for the configured time at most", DECIDE,
     "        period_ms = min(period_ms, request.renew_period_ms)\n",
     "        period_ms = request.renew_period_ms\n"),
    ("renewal-beyond-the-maximum", "no renewal goes beyond the max timestamp", DECIDE,
     "expiration_timestamp_ms=min(token.max_timestamp_ms, time_ms)",
     "expiration_timestamp_ms=time_ms"),
    ("renewal-by-anybody", "the owner and the renewers renew a token", RECORDS,
     "        return principal in (self.owner, *self.renewers)\n", "        return True\n"),
    ("renewal-by-the-requester", "who created a token for another does not renew it", RECORDS,
     "        return principal in (self.owner, *self.renewers)\n",
     "        return principal in (self.owner, self.requester, *self.renewers)\n"),
    ("expiry-by-anybody", "the owner and the renewers let a token expire", DECIDE,
     "    if not token.may_be_renewed_by(request.requester):\n"
     "        return Decision((), _mismatch(token, request.requester))\n"
     "    if request.expiry_period_ms < 0:\n",
     "    if request.expiry_period_ms < 0:\n"),
    ("expired-until-max", "a token expires at the earlier of its two times", RECORDS,
     "        return min(self.max_timestamp_ms, self.expiration_timestamp_ms) < wall_ms\n",
     "        return self.max_timestamp_ms < wall_ms\n"),
    ("hmac-as-fingerprint", "an HMAC is in no message between nodes", KEY,
     "    return hashlib.sha256(token_hmac).digest()\n", "    return token_hmac\n"),
    ("tokens-of-yesterday", "a fingerprint finds only a token that exists", KEY,
     "        if tokens is not self._indexed:\n", "        if self._indexed is None:\n"),
    ("snapshot-without-tokens", "a snapshot has the tokens", SNAPSHOT,
     "    for _, token in sorted(image.delegation_tokens.items()):\n", "    for _, token in ():\n"),
    ("tokens-checked-by-standbys", "only the active controller removes tokens", CORE,
     "            self._leader_check.stop()\n            self._token_check_ms = None\n",
     "            self._leader_check.stop()\n"),
    ("tokens-checked-late", "leaders that change often remove tokens too", CORE,
     "        self._token_check_ms = now_ms + CHUNK_PAUSE_MS\n",
     "        self._token_check_ms = now_ms + controller.token_check_interval_ms\n"),
)  # fmt: skip

_OF_BROKERS: tuple[tuple[str, str, str, str, str], ...] = (
    ("token-for-anybody", "a token of another user needs CREATE_TOKENS", CREATE,
     "    if owner != requester and not context.allows(\n", "    if False and not context.allows(\n"),
    ("token-from-a-token", "a token brings forth no other", CONTEXT,
     "        return not self.came_by_token\n", "        return True\n"),
    ("token-for-a-stranger", "a client without a login gets no token", CONTEXT,
     "            return self.user != ANONYMOUS\n", "            return True\n"),
    ("token-apis-without-a-key", "without a key the APIs say so", SHARED,
     "    return TOKENS_OFF if context.services.token_key is None else None\n", "    return None\n"),
    ("token-apis-off-for-strangers", "a client without a login may not ask, with a key or without",
     SHARED, "    if not context.may_ask_about_tokens:\n        return NOT_ALLOWED\n"
     "    return TOKENS_OFF if context.services.token_key is None else None\n",
     "    if context.services.token_key is None:\n        return TOKENS_OFF\n"
     "    return None if context.may_ask_about_tokens else NOT_ALLOWED\n"),
    ("tokens-of-all", "tokens of others need access", DESCRIBE,
     "        token.is_of(principal_of(context))\n", "        True\n"),
    ("tokens-of-other-owners", "the owners that are asked for alone are shown", DESCRIBE,
     "    if owners is not None and not any(map(token.is_of, owners)):\n", "    if False:\n"),
    ("token-shown-by-any-name", "DESCRIBE_TOKENS is on the owner", DESCRIBE,
     "context.shows(ResourceType.USER, token.owner, AclOperation.DESCRIBE_TOKENS)",
     "context.shows(ResourceType.USER, token.token_id, AclOperation.DESCRIBE_TOKENS)"),
    ("login-when-expired", "a token that has expired refuses logins", LOGINS,
     "        if lifetime_ms <= 0:\n", "        if False:\n"),
    ("login-until-max", "a session ends with the token's expiration", LOGINS,
     "min(token.expiration_timestamp_ms, token.max_timestamp_ms)", "token.max_timestamp_ms"),
    ("login-of-a-group", "a token of another type than User lets nobody in", LOGINS,
     "        if token is None or not token.owner.startswith(USER_PREFIX):\n",
     "        if token is None:\n"),
    ("login-without-end", "the proof by token says how long it is good", SCRAM,
     "        return Step(answer_bytes, login.user, login.lifetime_ms, is_token=True)\n",
     "        return Step(answer_bytes, login.user, is_token=True)\n"),
    ("login-as-the-token", "the client is the token's owner", LOGINS,
     "            user=token.owner.removeprefix(USER_PREFIX),\n", "            user=token_id,\n"),
    ("user-as-token", "users and tokens of one name are two things", SCRAM,
     "        if not self._is_token:\n            return self._find(user)\n", "        return self._find(user)\n"),
    ("token-session-for-ever", "a session ends with its token", SESSIONS,
     "        self._session_ms = self._lifetime_ms(step.lifetime_ms)\n",
     "        self._session_ms = self._lifetime_ms(None)\n"),
    ("token-unknown-to-the-session", "a session knows that it is a token's", SESSIONS,
     "        self.is_token = step.is_token\n", ""),
)  # fmt: skip

MUTANTS = (
    *mutants_of(
        _OF_THE_CONTROLLER,
        tests=(
            "tests/test_metadata/test_tokens.py",
            "tests/test_metadata/test_quorum_controller.py",
        ),
    ),
    *mutants_of(
        _OF_BROKERS,
        tests=(
            "tests/test_broker/test_token_apis.py",
            "tests/test_broker/test_token_logins.py",
            "tests/test_broker/test_without_authorizer.py",
        ),
    ),
)
