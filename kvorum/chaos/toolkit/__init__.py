"""The actions and probes of experiments, as Chaos Toolkit calls them by their `func`.

This module has one function for each live fault, one for each probe, and `storm`. Their keyword
arguments are those of `chaos.faults`. They act on the cluster that the control
(`chaos.toolkit.control`) started for the experiment, and raise KvorumError if there is none.
"""

from __future__ import annotations

from kvorum.chaos.experiment_file.steps import PROBES
from kvorum.chaos.faults import LIVE_FAULTS
from kvorum.chaos.toolkit.functions import action_function, probe_function, storm

# Chaos Toolkit looks functions up by name in this module, and checks arguments against their
# signatures; both come from the tables that the parser of experiments has.
globals().update({name: action_function(name, kind) for name, kind in LIVE_FAULTS.items()})
globals().update({name: probe_function(name, text) for name, text in PROBES.items()})

__all__ = ["storm"]
__all__ += [*LIVE_FAULTS, *PROBES]
