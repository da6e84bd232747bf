"""Rules for what goes away: brokers out of their partitions, sources out of a move."""

from __future__ import annotations

from tests.mutants.model import of_controller_runs, of_decisions

CHANGE = "metadata/controller/decide/partition_change.py"
CONTROLLER = "metadata/controller/controller.py"
FENCING = "metadata/controller/decide/broker_fencing.py"

MUTANTS = (
    of_decisions(
        "fencing-followers-first",
        "what a dead broker led is led again before anything else",
        FENCING,
        "    pieces = at.led if at.unseen else (*at.led, *at.followed)\n",
        "    pieces = (*at.led, *at.followed)\n",
    ),
    of_decisions(
        "fencing-looks-once",
        "what was placed on a broker while it was being fenced is not left to it",
        CONTROLLER,
        "            self._fencing = self._fencing.note(records)\n",
        "            pass\n",
    ),
    of_decisions(
        "fencing-of-another-process",
        "a new process of a broker is not fenced for the one before",
        FENCING,
        "    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:\n",
        "    if broker is None or broker.is_fenced:\n",
    ),
    of_decisions(
        "fencing-and-return",
        "nobody lets a broker in that is just being fenced",
        CONTROLLER,
        "                leaving = None if self._fencing is None else self._fencing.broker_id\n",
        "                leaving = None\n",
    ),
    of_controller_runs(
        "fencing-leaves-no-leader-early",
        "a partition loses its last leader together with that broker's fencing",
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
