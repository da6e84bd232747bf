"""Rules for what goes away: brokers out of their partitions, sources out of a move."""

from __future__ import annotations

from tests.mutants.model import of_controller_runs, of_decisions

CHANGE = "metadata/controller/decide/partition_change.py"
CONTROLLER = "metadata/controller/controller.py"
DEPARTURE = "metadata/controller/decide/departure.py"

MUTANTS = (
    of_decisions(
        "departure-followers-first",
        "what a dead broker led is led again before anything else",
        DEPARTURE,
        "    pieces = at.led if at.unseen else (*at.led, *at.followed)\n",
        "    pieces = (*at.led, *at.followed)\n",
    ),
    of_decisions(
        "departure-looks-once",
        "what was placed on a broker while it was being fenced is not left to it",
        CONTROLLER,
        "            self._departure = self._departure.note(records)\n",
        "            pass\n",
    ),
    of_decisions(
        "departure-of-another-process",
        "a new process of a broker is not fenced for the one before",
        DEPARTURE,
        "    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:\n",
        "    if broker is None or broker.is_fenced:\n",
    ),
    of_decisions(
        "departure-and-return",
        "nobody lets a broker in that is just being fenced",
        CONTROLLER,
        "                leaving = None if self._departure is None else self._departure.broker_id\n",
        "                leaving = None\n",
    ),
    of_controller_runs(
        "departure-leaves-no-leader-early",
        "a partition loses its last leader together with that broker's fencing",
        DEPARTURE,
        "            if key in stuck or (record.leader == NO_LEADER and not is_last):\n",
        "            if key in stuck:\n",
    ),
    of_decisions(
        "reassignment-waits-for-the-dead",
        "an unclean election of the only target completes a reassignment",
        CHANGE,
        "    shape = _completed(shape._replace(isr=outcome.isr), terms)\n",
        "    shape = shape._replace(isr=outcome.isr)\n",
    ),
)
