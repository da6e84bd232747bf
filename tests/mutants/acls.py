"""Rules of creating, deleting and recording ACLs, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

ACLS = "kvorum/metadata/controller/decide/acls.py"
CONTROLLER = "kvorum/metadata/controller/core/controller.py"
CREATE = "kvorum/broker/api/create_acls.py"
DELETE = "kvorum/broker/api/delete_acls.py"
DESCRIBE = "kvorum/broker/api/describe_acls.py"
CODEC = "kvorum/metadata/image/record_codec.py"
DELTA = "kvorum/metadata/image/delta.py"
FEATURES = "kvorum/metadata/controller/decide/features.py"
REQUESTS = "kvorum/metadata/requests/acl_requests.py"
SNAPSHOT = "kvorum/metadata/image/snapshot_job.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("acls-below-their-level", "no ACL is written below the metadata.version that supports it",
     ACLS, "    if level >= ACL_LEVEL:\n", "    if True:\n"),
    ("level-that-loses-acls", "a downgrade is refused while there are ACLs", FEATURES,
     "    if level < ACL_LEVEL and image.acls:\n", "    if False:\n"),
    ("acl-twice", "an ACL is there once", ACLS,
     "        if acl not in image.acl_ids and acl not in new:\n", "        if acl not in new:\n"),
    ("acl-twice-in-a-request", "an ACL is there once", ACLS,
     "        if acl not in image.acl_ids and acl not in new:\n",
     "        if acl not in image.acl_ids:\n"),
    ("acl-for-filters", "ANY and MATCH are for filters only", ACLS,
     "    if member.name in _FOR_FILTERS:\n", "    if False:\n"),
    ("acl-of-another-cluster", "there is one resource of type CLUSTER", ACLS,
     "    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:\n", "    if False:\n"),
    ("acl-without-a-name", "a resource has a name", ACLS, "    if not name:\n", "    if False:\n"),
    ("acl-of-a-bare-user", "a principal has a type", ACLS,
     "    if \":\" not in acl.principal:\n", "    if False:\n"),
    ("acl-of-no-host", "an ACL has a host", ACLS, "    if not acl.host:\n", "    if False:\n"),
    ("acl-of-no-range", "a range of hosts can be read", ACLS,
     "    if not is_valid_host(acl.host):\n", "    if False:\n"),
    ("acl-of-any-length", "a thousand ACLs fit a frame of a snapshot", ACLS,
     "    if problem is None and max(map(len, _texts(creation))) > TEXT_BYTES_MAX:\n",
     "    if False:\n"),
    ("acls-without-end", "the records of a request are bounded", ACLS,
     "            if len(records) == records_max:\n", "            if False:\n"),
    ("request-bytes-without-end", "the records of a request fit a segment", CONTROLLER,
     "            if isinstance(request, _OF_CLIENTS) and _bytes_of(records) > "
     "BYTES_PER_REQUEST_MAX:\n", "            if False:\n"),
    ("acl-deletions-without-end", "the records of a request are bounded", ACLS,
     "        if len(gone) > records_max:\n", "        if False:\n"),
    ("acl-filters-without-end", "the work for a request is bounded", ACLS,
     "                if comparisons_left < 0:\n", "                if False:\n"),
    ("acl-list-without-end", "the size of an answer is bounded", ACLS,
     "        if listed > LISTED_MAX:\n", "        if False:\n"),
    ("exact-filter-of-any-type", "a filter with a gap is not one ACL", ACLS,
     "    if any(value.name in _FOR_FILTERS for value in values):\n", "    if False:\n"),
    ("exact-filter-of-nothing", "a filter finds only ACLs that exist", ACLS,
     "                acls = (only,) if only in image.acl_ids else ()\n",
     "                acls = (only,)\n"),
    ("unknown-pattern-filter", "a filter without a meaning deletes nothing", REQUESTS,
     "            resource_type = ResourceType(self.resource_type)\n",
     "            resource_type = ResourceType(self.resource_type or 1)\n"),
    ("unknown-operation-skipped", "an ACL without a meaning is not skipped", CODEC,
     "        AclOperation(operation),\n", "        operation,\n"),
    ("acl-ids-forgotten", "ids and ACLs are of one image", DELTA,
     "        del self._acl_ids[acl]\n", "        pass\n"),
    ("acl-added-and-removed", "a delta has no ACL that came and went within it", DELTA,
     "        if acl in self._added_acls:\n            del self._added_acls[acl]\n",
     "        if False:\n            del self._added_acls[acl]\n"),
    ("acl-removed-and-added", "a delta has no ACL that went and came back within it", DELTA,
     "        if acl in self._removed_acls:\n            del self._removed_acls[acl]\n",
     "        if False:\n            del self._removed_acls[acl]\n"),
    ("snapshot-without-acls", "a snapshot has the ACLs", SNAPSHOT,
     "    for acl_id, acl in sorted(image.acls.items(), key=lambda item: item[0]):\n",
     "    for acl_id, acl in ():\n"),
)  # fmt: skip

_OF_APIS: tuple[tuple[str, str, str, str, str], ...] = (
    ("acls-of-two-patterns", "ACLs are described by resource pattern", DESCRIBE,
     "    return (acl.resource_type, acl.resource_name, acl.pattern_type)\n",
     "    return (acl.resource_type, acl.resource_name, 3)\n"),
    ("acls-without-an-authorizer", "without an authorizer no ACL is shown", DESCRIBE,
     "    if context.services.authorizer is None:\n        return NO_AUTHORIZER\n    if",
     "    if False:\n        return NO_AUTHORIZER\n    if"),
    ("acl-created-without-an-authorizer", "without an authorizer no ACL is created or deleted", DESCRIBE,
     "    if context.services.authorizer is None:\n        return NO_AUTHORIZER\n    return await",
     "    if False:\n        return NO_AUTHORIZER\n    return await"),
    ("acl-of-another-host", "an ACL is created as it was asked for", CREATE,
     "                host=item.host,\n", '                host="*",\n'),
    ("acl-of-any-pattern", "an ACL is created as it was asked for", CREATE,
     "                pattern_type=item.resource_pattern_type,\n",
     "                pattern_type=3,\n"),
    ("filter-of-any-host", "a filter selects by all its fields", DESCRIBE,
     "        host=item.host_filter,\n", "        host=None,\n"),
    ("filter-of-any-principal", "a filter selects by all its fields", DESCRIBE,
     "        principal=item.principal_filter,\n", "        principal=None,\n"),
    ("acls-in-any-order", "every node shows ACLs in one order", "kvorum/metadata/access/selection.py",
     "sorted(filter(wanted.matches, acls), key=_place)", "filter(wanted.matches, acls)"),
)  # fmt: skip

MUTANTS = (
    *mutants_of(
        _RULES,
        tests=("tests/test_metadata/test_acls.py", "tests/test_metadata/test_acl_records.py"),
    ),
    *mutants_of(
        _OF_APIS,
        tests=(
            "tests/test_broker/test_acl_apis.py",
            "tests/test_broker/test_without_authorizer.py",
        ),
    ),
)
