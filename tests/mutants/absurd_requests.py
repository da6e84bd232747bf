"""Mutants of the limits that keep an absurd request from costing more than itself."""

from __future__ import annotations

from tests.mutants.model import Rule, mutants_of

MARKING = "kvorum/broker/transactions/marking.py"

_METADATA: tuple[Rule, ...] = (
    ("digits-without-bound", "a number with too many digits is refused",
     "kvorum/metadata/configs/model.py", '"[+-]?[0-9]{1,100}"', '"[+-]?[0-9]+"'),
    ("long-number-of-a-broker", "a broker id with too many digits is refused", "kvorum/runtime/text.py",
     " and len(text) <= DIGITS_MAX", ""),
)  # fmt: skip

_UNDECIDED: tuple[Rule, ...] = (
    ("bug-in-a-decision-ends-the-quorum", "a bug in a decision fails only its request",
     "kvorum/metadata/controller/core/controller.py",
     "        except Exception as bug:\n            raise DecisionFailed(",
     "        except ZeroDivisionError as bug:\n            raise DecisionFailed("),
    ("violated-invariant-survived", "a broken invariant ends the process",
     "kvorum/metadata/controller/core/controller.py", "        except InvariantViolated:\n            raise\n", ""),
    ("undecided-ends-the-controller", "who asks what cannot be decided is told",
     "kvorum/metadata/controller/loop.py", "        except DecisionFailed as bug:", "        except ZeroDivisionError as bug:"),
    ("sent-to-every-controller", "what was lost with two controllers goes to no third",
     "kvorum/metadata/rpc/client.py", "len(lost) >= LOST_MAX:", "len(lost) >= 1 << 30:"),
    ("unsent-is-lost", "a request that was never sent does not count as lost", "kvorum/metadata/rpc/client.py",
     "    return not isinstance(error, Unsent) and not is_late\n", "    return not is_late\n"),
    ("late-is-lost", "a request to a slow controller does not count as lost", "kvorum/metadata/rpc/client.py",
     "    return not isinstance(error, Unsent) and not is_late\n",
     "    return not isinstance(error, Unsent)\n"),
)  # fmt: skip

_BROKER: tuple[Rule, ...] = (
    ("pause-without-bound", "a throttle time fits its field", "kvorum/broker/quotas/client_quotas.py",
     "    return round(min(pause_ms, PAUSE_MS_MAX))\n", "    return round(pause_ms)\n"),
    ("longest-pause-of-a-client", "a client's throttle time is bounded", "kvorum/broker/quotas/client_quotas.py",
     "        pause_ms = bounded_ms(", "        pause_ms = round("),
    ("longest-debt-of-partitions", "the throttle time for partition mutations is bounded",
     "kvorum/broker/quotas/mutation_quota.py",
     "max(bounded_ms(", "max(round("),
    ("name-answered-again", "a topic that a request names twice is described once", "kvorum/broker/api/metadata.py",
     "dict.fromkeys(item.name for item in asked)", "[item.name for item in asked]"),
    ("resource-answered-again", "a resource that a request names twice is described once", "kvorum/broker/api/describe_configs.py",
     "    return [_Asked(kind, name, keys) for (kind, name), keys in found.items()]\n",
     "    return [_Asked(r.resource_type, r.resource_name, set()) for r in resources]\n"),
    ("all-keys-forgotten", "null for the keys of a resource means all keys", "kvorum/broker/api/describe_configs.py",
     "            known.clear()\n", "            known |= keys\n"),
    ("offsets-of-a-repeated-partition", "a partition that a request names twice gets no offsets",
     "kvorum/broker/api/list_offsets.py", "asked.partition_index] == 1", "asked.partition_index] > 0"),
    ("producers-answered-again", "a partition that a request names twice has its producers described once",
     "kvorum/broker/api/describe_producers.py",
     "update(dict.fromkeys(topic.partition_indexes))",
     "update({p + 1000 * n: None for n, p in enumerate(topic.partition_indexes)})"),
    ("transaction-answered-again", "a transaction that a request names twice is described once",
     "kvorum/broker/api/describe_transactions.py",
     "dict.fromkeys(request.transactional_ids)", "request.transactional_ids"),
    ("group-answered-again", "a group that a request names twice gets no offsets", "kvorum/broker/api/offset_fetch.py",
     "if counts[group.group_id] == 1]", "]"),
    ("marker-of-nobody", "a marker without a producer id is not stored", MARKING,
     "    if marker.producer_id < 0:\n", "    if False:\n"),
    ("marker-of-no-epoch", "a marker without a producer epoch is not stored", MARKING,
     "    if marker.producer_epoch < 0:\n", "    if False:\n"),
    ("offset-answered-again", "an offset that a request names twice is answered once", "kvorum/broker/api/offset_fetch.py",
     "{}).update(dict.fromkeys(row.partition_indexes))",
     "{}).update({p + 1000 * n: None for n, p in enumerate(row.partition_indexes)})"),
)  # fmt: skip

MUTANTS = (
    *mutants_of(_METADATA, tests=("tests/test_metadata/test_configs.py",)),
    *mutants_of(_BROKER, tests=("tests/test_broker/test_absurd_requests.py",)),
    *mutants_of(_UNDECIDED, tests=("tests/test_metadata",)),
)
