"""Rules of access control, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

AUTHORIZER = "kvorum/metadata/access/authorizer.py"
HOSTS = "kvorum/metadata/access/hosts.py"
FOLLOWING = "kvorum/metadata/access/following.py"
CONTEXT = "kvorum/broker/api/context.py"
FETCH = "kvorum/broker/api/fetch.py"
LEADER = "kvorum/broker/fetch/leader_fetch.py"
METADATA = "kvorum/broker/api/metadata.py"
PRODUCE = "kvorum/broker/api/produce.py"
GROUPS = "kvorum/broker/api/group_calls.py"
TARGETS = "kvorum/broker/groups/consumer/targets.py"
PROPERTIES = "kvorum/launch/config/access.py"
NODES = "kvorum/metadata/access/nodes.py"
STREAM = "kvorum/runtime/http2/context.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("deny-only-if-nobody-allows", "a DENY beats every ALLOW", AUTHORIZER,
     "                    if acl.permission == Permission.DENY:\n                        return False\n",
     "                    if acl.permission == Permission.DENY:\n                        continue\n"),
    ("deny-implies-describe", "only an ALLOW of use implies DESCRIBE", AUTHORIZER,
     "        acl.permission == Permission.ALLOW and acl.operation in _IMPLIED_BY",
     "        acl.operation in _IMPLIED_BY"),
    ("prefix-of-itself-only", "a prefix matches every name that begins with it", AUTHORIZER,
     "            if length <= len(name) and name[:length] in self.prefixed:\n",
     "            if length == len(name) and name[:length] in self.prefixed:\n"),
    ("wildcard-forgotten", "a literal * matches every name", AUTHORIZER,
     "        for literal in (name, WILDCARD):\n", "        for literal in (name,):\n"),
    ("everybody-forgotten", "User:* is everybody", AUTHORIZER,
     "            for whose in (principal, ANYBODY):\n", "            for whose in (principal,):\n"),
    ("open-beside-others-acls", "a resource that an ACL names is not open to all", AUTHORIZER,
     "self._allow_if_no_acl and not has_acls)", "self._allow_if_no_acl)"),
    ("answers-for-ever", "answers are forgotten when ACLs change", AUTHORIZER,
     "            self._types[acl.resource_type].add(acl)\n        self._answers.clear()\n",
     "            self._types[acl.resource_type].add(acl)\n"),
    ("answers-by-type-for-ever", "answers are forgotten when ACLs change", AUTHORIZER,
     "        self._answers.clear()\n        self._answers_by_type.clear()\n",
     "        self._answers.clear()\n"),
    ("memory-without-end", "a client cannot make a node remember without end", AUTHORIZER,
     "            if len(self._answers) >= CACHED_ANSWERS_MAX:\n", "            if False:\n"),
    ("hidden-allow-counts", "an ALLOW below a DENY gives no right", AUTHORIZER,
     "not any(_hides(deny, acl) for deny in denied)", "True"),
    ("mapped-address-is-another", "an IPv4 address in IPv6 form is the same host", HOSTS,
     "    return str(found if mapped is None else mapped)\n", "    return str(found)\n"),
    ("range-of-any-family", "a range is of one family of addresses", HOSTS,
     "    return found.version == range_.version and found in range_\n", "    return True\n"),
    ("acls-of-the-image-before", "an authorizer follows the image", FOLLOWING,
     "    elif delta.added_acls or delta.removed_acls:\n", "    elif False:\n"),
    ("follower-by-its-word", "a follower needs CLUSTER_ACTION", FETCH,
     "    if request.replica_id >= 0 and not context.may_follow_as(request.replica_id):\n",
     "    if False:\n"),
    ("session-checked-once", "each answer to a fetch is checked", LEADER,
     "    state.may_read = may_read\n",
     "    state.may_read = state.may_read or may_read if is_full else None\n"),
    ("all-topics-shown", "a list has what the client may describe", METADATA,
     "        if context.has_access_control:\n", "        if False:\n"),
    ("hidden-id-known", "an id of a hidden topic is unknown", METADATA,
     "    if topic is None or not context.allows_topic(AclOperation.DESCRIBE, topic.name):\n",
     "    if topic is None:\n"),
    ("created-for-all", "auto-creation needs CREATE", METADATA,
     "        if not may_create_all and not context.allows_topic(AclOperation.CREATE, name)\n",
     "        if False\n"),
    ("transaction-of-anybody", "a transactional batch needs its transactional id", PRODUCE,
     "    if not is_transactional:\n        return True\n", "    return True\n"),
    ("group-of-anybody", "a group's coordinator is asked with a right", GROUPS,
     "    if not context.allows(needs, ResourceType.GROUP, group_id):\n        return",
     "    if False:\n        return"),
    ("expression-matches-all", "an expression matches what its client may know of", TARGETS,
     "        if self.may_describe is not None:\n", "        if False:\n"),
    ("votes-of-a-broker", "a node sends in its own name alone", NODES,
     "        if is_own:\n", "        if is_own or user.startswith('CN=broker-'):\n"),
    ("replica-of-anybody", "a fetch names its own replica", NODES,
     "    \"Fetch\": _REPLICA,\n", ""),
    ("followers-of-any-name", "a follower fetches in its own name alone", CONTEXT,
     "        if nodes is None or self.user == nodes.broker(broker_id):\n", "        if True:\n"),
    ("message-not-checked", "a message that the guard refuses is not carried out", STREAM,
     "        check(message)\n", ""),
    ("controllers-named-like-brokers", "a broker cannot have the name of a controller",
     PROPERTIES, "    if _may_be_equal(of_controllers, of_brokers):\n",
     "    if of_controllers == of_brokers:\n"),
    ("super-users-without-authorizer", "a setting that has no effect is refused", PROPERTIES,
     "        if names or allow_if_no_acl or nodes is not None:\n", "        if False:\n"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_access",
        "tests/test_groups/consumer/test_stories.py",
        "tests/test_launch/test_carried_over.py",
        "tests/test_metadata/test_node_principals.py",
    ),
)
