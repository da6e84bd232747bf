"""Chaos Toolkit's control: a cluster with its load before the experiment, a report after it.

Chaos Toolkit calls these functions by name. The run's folder is that of the environment variable
KVORUM_CHAOS_OUT, or chaos-runs/TITLE-TIME. The experiment as Chaos Toolkit read it lies beside it,
as FOLDER.json.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from pathlib import Path
from typing import Any

from kvorum.chaos.experiment_file.experiment import TOP_KEYS
from kvorum.chaos.report.report import RunResult
from kvorum.chaos.toolkit.session import (
    ToolkitRun,
    close_run,
    current_run,
    name_activity,
    open_run,
)
from kvorum.runtime.errors import ConfigError, KvorumError

OUT = "KVORUM_CHAOS_OUT"
_logger = logging.getLogger("chaostoolkit")


def before_experiment_control(
    context: dict[str, Any], configuration: dict[str, Any] | None = None
) -> None:
    """Start the cluster and its load. Interrupts the experiment if that fails."""
    from chaoslib.exceptions import InterruptExecution

    folder = os.environ.get(OUT) or _folder_for(str(context.get("title", "")))
    file = f"{folder}.json"
    whole = {key: context[key] for key in TOP_KEYS if key in context}
    if configuration:
        whole["configuration"] = configuration
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(json.dumps(whole, indent=1), encoding="utf-8")
        run = ToolkitRun(file, output_dir=folder, progress=_logger.info)
        open_run(run)
        run.start()
    except (ConfigError, KvorumError, OSError) as error:
        # Chaos Toolkit swallows every other exception of a control and goes on without a cluster.
        raise InterruptExecution(str(error)) from error


def before_activity_control(context: dict[str, Any]) -> None:
    """Note the activity's name, so that the history names its fault as the experiment does."""
    name_activity(str(context.get("name", "")))


def after_method_control(context: dict[str, Any]) -> None:
    """Heal, and wait for the steady state: Chaos Toolkit looks at it right after the method."""
    try:
        current_run().settle()
    except KvorumError as error:
        _logger.error(str(error))


def after_experiment_control(context: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the report. The journal has its verdict under `kvorum`; a verdict other than `passed`
    makes the experiment fail."""
    ended_as = str(state.get("status"))
    # Chaos Toolkit swallows what a control raises: without a verdict the experiment has failed.
    state["status"] = "failed"
    state["kvorum"] = {"verdict": "undecided", "reasons": ["the run ended without a verdict"]}
    try:
        result = _end(current_run(), ended_as, has_method=bool(state.get("run")))
    except (ConfigError, KvorumError, OSError) as error:
        _logger.error(str(error))
        state["kvorum"]["reasons"] = [str(error)]
        return
    finally:
        close_run()
    state["kvorum"] = {
        "verdict": result.verdict,
        "reasons": list(result.reasons),
        "report": result.report_html,
    }
    if result.verdict == "passed":
        state["status"] = ended_as
    _logger.info("verdict: %s - %s", result.verdict, result.summary)
    _logger.info("report: %s", result.report_html)


def _end(run: ToolkitRun, ended_as: str, *, has_method: bool) -> RunResult:
    """End the run: with `break_off` if Chaos Toolkit did not play the method to its end, since such
    a run proves nothing."""
    if ended_as in ("interrupted", "aborted"):
        return run.break_off(f"Chaos Toolkit's run was {ended_as}")
    if not has_method:
        return run.break_off("Chaos Toolkit did not play the method")
    return run.finish()


def _folder_for(title: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "experiment"
    return f"chaos-runs/{words}-{time.strftime('%Y%m%d-%H%M%S')}"
