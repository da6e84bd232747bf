"""Makes the functions that Chaos Toolkit calls, with the signatures that it checks."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.experiment_file.keys import STORM_KEYS
from kvorum.chaos.experiment_file.steps import Action, Probe, read_storm
from kvorum.chaos.faults import LiveFault
from kvorum.chaos.toolkit.session import ToolkitRun, activity_name, current_run
from kvorum.runtime.errors import ConfigError

_LEAVE_WITH_ROLLBACKS = 20
"""An exit code of `chaoslib.exit.exit_gracefully`: Chaos Toolkit ends the method and runs the
rollbacks."""

_COUNT, _PAUSE_MS_MIN, _PAUSE_MS_MAX = (key.default or 0 for key in STORM_KEYS)


def action_function(name: str, kind: type[LiveFault]) -> Callable[..., dict[str, object]]:
    """The function of one fault: it returns when the fault is over."""

    def act(**arguments: Any) -> dict[str, object]:
        fault = build_fault(name, arguments)
        if isinstance(fault, list):
            raise ConfigError("; ".join(problem.message for problem in fault))
        with _interruptible():
            return _carry_out(current_run(), Action(name=activity_name(name), fault=fault))

    _dress(act, name, kind.__doc__ or "", _parameters(kind))
    return act


def probe_function(name: str, meaning: str) -> Callable[[], float]:
    """The function of one probe: it returns the measurement, a whole number where it is one."""

    def measure() -> float:
        with _interruptible():
            value = current_run().measure(Probe(name=activity_name(name), func=name))
        return int(value) if value.is_integer() else value

    _dress(measure, name, meaning, [])
    return measure


def storm(
    *,
    faults: Sequence[dict[str, Any]],
    count: int = _COUNT,
    pause_ms_min: int = _PAUSE_MS_MIN,
    pause_ms_max: int = _PAUSE_MS_MAX,
) -> list[dict[str, object]]:
    """Draw `count` of the faults by the experiment's seed, each after a random pause.

    Raises ConfigError for arguments that an experiment could not have.
    """
    run = current_run()
    arguments = {
        "count": count,
        "pause_ms_min": pause_ms_min,
        "pause_ms_max": pause_ms_max,
        "faults": list(faults),
    }
    done = []
    with _interruptible():
        for action in read_storm(activity_name("storm"), arguments, run.possible, run.rng):
            run.wait(action.pause_before_ms)
            done.append(_carry_out(run, action))
    return done


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ends the run, and Chaos Toolkit's method, if Chaos Toolkit is interrupted in an activity.

    Its handler of SIGTERM raises InterruptExecution. Raised inside an activity, Chaos Toolkit takes
    the exception for a failure of that activity and plays on.
    """
    from chaoslib.exceptions import InterruptExecution

    try:
        yield
    except InterruptExecution as error:
        current_run().interrupt(f"Chaos Toolkit was interrupted: {error}")
        raise SystemExit(_LEAVE_WITH_ROLLBACKS) from error


def _carry_out(run: ToolkitRun, action: Action) -> dict[str, object]:
    return dataclasses.asdict(run.carry_out(action))


def _parameters(kind: type[LiveFault]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=(
                inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            ),
            # A target is a text here; the other types are those of the fault.
            annotation="str" if "Target" in str(field.type) else field.type,
        )
        for field in dataclasses.fields(kind)
    ]


def _dress(
    function: Callable[..., Any],
    name: str,
    meaning: str,
    parameters: Sequence[inspect.Parameter],
) -> None:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "kvorum.chaos.toolkit"
    function.__doc__ = meaning
    ordered = sorted(parameters, key=lambda p: p.default is not inspect.Parameter.empty)
    vars(function)["__signature__"] = inspect.Signature(ordered)
