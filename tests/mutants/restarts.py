"""Mutants of starts that end early, and of answers and removals that happen once too often."""

from __future__ import annotations

from tests.mutants.model import Rule, mutants_of

BROKER_PROCESS = "kvorum/launch/nodes/broker_process.py"

_STARTS: tuple[Rule, ...] = (
    ("markers-taken-at-once", "a refused start keeps the clean-shutdown markers", BROKER_PROCESS,
     "        self._replicas.load(found=own.found)\n",
     "        self._remove_markers(own)\n        self._replicas.load(found=own.found)\n"),
    ("marker-beside-open-logs", "no clean-shutdown marker exists while logs are open", BROKER_PROCESS,
     "                remove_clean_shutdown(self._disk, item.path)\n",
     "                remove_clean_shutdown\n"),
    ("marker-of-an-earlier-epoch", "markers have the epoch of the latest registration", BROKER_PROCESS,
     "            if own.epoch_before != UNCLEAN:\n", "            if False:\n"),
    ("unclean-becomes-clean", "a start that fails does not turn an unclean shutdown into a clean one", BROKER_PROCESS,
     "            if own.epoch_before != UNCLEAN:\n", "            if True:\n"),
    ("unclean-logs-forgotten", "a start that opened no log marks none as closed", BROKER_PROCESS,
     "        if self._is_serving:\n            await self._close_replicas()\n",
     "        await self._close_replicas()\n"),
    ("kept-marker-stays-online", "a directory whose marker cannot be removed goes offline", BROKER_PROCESS,
     '                if self._replicas.directories.fail(item, failure, "start"):\n',
     "                if str(failure) == item.path:\n"),
    ("new-directory-unmarked", "a new directory counts as cleanly closed",
     "kvorum/launch/directories/log_directories.py", "        self._mark_new(disk)\n", ""),
)  # fmt: skip

_ELIGIBLE: tuple[Rule, ...] = (
    ("default-clears-every-elr", "a topic's own minimum comes before the default",
     "kvorum/metadata/controller/decide/elr_clearing.py",
     "            if MIN_INSYNC_REPLICAS not in image.topic_configs(topic.name):\n",
     "            if True:\n"),
    ("default-clears-no-elr", "the default is the minimum of topics without one",
     "kvorum/metadata/controller/decide/elr_clearing.py",
     "            if MIN_INSYNC_REPLICAS not in image.topic_configs(topic.name):\n",
     "            if False:\n"),
)  # fmt: skip

WAITERS = "kvorum/broker/purgatory/deadlines.py"

_DEADLINES: tuple[Rule, ...] = (
    ("expired-though-completed", "a request that completes during an expiry does not expire", WAITERS,
     "            items = self._buckets[bucket]\n            while",
     "            items = self._buckets[bucket].copy()\n            while"),
    ("expired-and-still-parked", "an expired request is no longer parked", WAITERS,
     "            self._buckets.pop(bucket, None)  # an expiry", "            # an expiry"),
)  # fmt: skip

_LOOK_UPS: tuple[Rule, ...] = (
    ("word-of-later-versions", "old clients get LEADER_NOT_AVAILABLE",
     "kvorum/broker/api/list_offsets.py",
     "        error = ErrorCode.LEADER_NOT_AVAILABLE\n", "        pass\n"),
    ("word-of-earlier-versions", "from version 5 on clients get OFFSET_NOT_AVAILABLE",
     "kvorum/broker/api/list_offsets.py",
     "OFFSET_NOT_AVAILABLE_VERSION = 5\n", "OFFSET_NOT_AVAILABLE_VERSION = 6\n"),
)  # fmt: skip

_TERMS: tuple[Rule, ...] = (
    ("deletion-missed-while-loading", "a topic deletion during the load deletes its offsets too",
     "kvorum/broker/coordinator/shard_context.py",
     "            # names.\n            self._events.append(event)\n", "            pass\n"),
    ("new-topic-taken-for-the-old", "a topic created again before the term is not deleted",
     "kvorum/broker/coordinator/host.py",
     "                context.give(at_first if is_first else event)\n",
     "                context.give(event)\n"),
    ("old-topic-taken-for-the-new", "what was made anew in the term is of us alone",
     "kvorum/broker/coordinator/host.py",
     "                context.give(at_first if is_first else event)\n",
     "                context.give(at_first)\n"),
)  # fmt: skip

MUTANTS = (
    *mutants_of(_STARTS, tests=("tests/test_launch/test_refused_starts.py",)),
    *mutants_of(_ELIGIBLE, tests=("tests/test_metadata/test_elections.py",)),
    *mutants_of(_DEADLINES, tests=("tests/test_broker/test_waiters_and_sessions.py",)),
    *mutants_of(_LOOK_UPS, tests=("tests/test_broker/test_following.py",)),
    *mutants_of(_TERMS, tests=("tests/test_broker/test_coordinator_host.py",)),
)
