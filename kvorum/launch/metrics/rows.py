"""The table of all metrics of a node, by its role."""

from __future__ import annotations

from kvorum.launch.metrics.broker_rows import BROKER_ROWS
from kvorum.launch.metrics.controller_rows import CONTROLLER_ROWS
from kvorum.launch.metrics.node_rows import NODE_ROWS
from kvorum.launch.metrics.row import Row

ROWS: dict[str, tuple[Row, ...]] = {
    "broker": (*NODE_ROWS, *BROKER_ROWS),
    "controller": (*NODE_ROWS, *CONTROLLER_ROWS),
}
