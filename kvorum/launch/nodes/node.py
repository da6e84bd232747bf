"""Run one node from its properties, in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.daemon.logs import set_up_logging
from kvorum.launch.daemon.process import run_node
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.machine import machine_of
from kvorum.runtime.private_files import create_files_private

logger = logging.getLogger("kvorum.node")

TRACING = "kvorum.tracing.enable"


def run_planned_node(
    role: str,
    properties: Mapping[str, Any],
    *,
    ready: Callable[[], None] = lambda: None,
    fault_board: str = "",
    notes: Sequence[str] = (),
) -> int:
    """Run a controller or broker until it is told to stop; return the exit code.

    fault_board: see `runtime.machine.machine_of`.
    notes: warnings for its log.
    Raises ConfigError for invalid properties, before anything is opened.
    """
    # Done before the first file is created: files that exist keep their modes.
    create_files_private()
    set_up_logging(properties=properties, node=f"{role}-{properties.get('node.id', '?')}")
    _trace_if_asked(f"{role}-{properties.get('node.id', '?')}", properties)
    machine = machine_of(fault_board)
    if role == "controller":
        from kvorum.launch.nodes.controller_process import ControllerProcess

        config, controller = controller_config(properties)
        _log_notes((*notes, *config.notes))
        return run_node(
            lambda failed: ControllerProcess(
                config, controller, on_failure=failed, machine=machine
            ),
            ready=ready,
        )
    if role == "broker":
        from kvorum.launch.nodes.broker_process import BrokerProcess

        broker_node, broker = broker_config(properties)
        _log_notes((*notes, *broker_node.notes))
        return run_node(
            lambda failed: BrokerProcess(broker_node, broker, on_failure=failed, machine=machine),
            ready=ready,
        )
    raise ConfigError(f"a node is a controller or a broker, not {role!r}")


def _trace_if_asked(node: str, properties: Mapping[str, Any]) -> None:
    if str(properties.get(TRACING, "false")).lower() == "true":
        # The extra `otel` is imported only here.
        from kvorum.launch.daemon.tracing import set_up_tracing

        set_up_tracing(node, metadata.version("kvorum"))


def _log_notes(notes: Sequence[str]) -> None:
    for note in notes:
        logger.warning("%s", note)
