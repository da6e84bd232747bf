"""Rules of leaving replicas: fenced brokers leave their partitions, sources leave a
reassignment."""

from __future__ import annotations

from tests.mutants.model import of_controller_runs, of_decisions

CHANGE = "kvorum/metadata/controller/decide/partition_change.py"
CONTROLLER = "kvorum/metadata/controller/core/controller.py"
FENCING = "kvorum/metadata/controller/decide/broker_fencing.py"

MUTANTS = (
    of_decisions(
        "fencing-followers-first",
        "the partitions that a dead broker led get new leaders first",
        FENCING,
        "    pieces = at.led if at.unseen else (*at.led, *at.followed)\n",
        "    pieces = (*at.led, *at.followed)\n",
    ),
    of_decisions(
        "fencing-looks-once",
        "a replica that is placed on a broker during its fencing is handled too",
        CONTROLLER,
        "            self._fencing = self._fencing.note(records)\n",
        "            pass\n",
    ),
    of_decisions(
        "rack-moves-within",
        "no partition of a dead rack moves to another of its brokers",
        FENCING,
        "eligible_brokers(image, leaving=gone, is_unclean_default=is_unclean_default)",
        "eligible_brokers(image, is_unclean_default=is_unclean_default)",
    ),
    of_decisions(
        "rack-searched-for-each",
        "a broker that is being fenced already begins no other search",
        CONTROLLER,
        "        if fencing is None or fencing.epochs.items() <= known.items():\n",
        "        if fencing is None:\n",
    ),
    of_decisions(
        "fencing-of-another-process",
        "a fencing stops if a new process of the broker registers",
        FENCING,
        "        and broker.broker_epoch == epoch\n",
        "",
    ),
    of_decisions(
        "fencing-and-return",
        "a broker that is being fenced joins no ISR",
        CONTROLLER,
        "                leaving = () if self._fencing is None else self._fencing.epochs\n",
        "                leaving = ()\n",
    ),
    of_controller_runs(
        "fencing-leaves-no-leader-early",
        "a partition becomes leaderless only in the record batch that fences its broker",
        FENCING,
        "            if key in stuck or (record.leader == NO_LEADER and not is_last):\n",
        "            if key in stuck:\n",
    ),
    of_decisions(
        "reassignment-waits-for-the-dead",
        "an unclean election of the only target completes a reassignment",
        CHANGE,
        "    shape = _completed(shape._replace(isr=outcome.isr), rules)\n",
        "    shape = shape._replace(isr=outcome.isr)\n",
    ),
)
