"""The services of the Compose file."""

from __future__ import annotations

from typing import Any

import yaml

from tests.test_deploy.tools import DEPLOY

COMPOSE = DEPLOY / "compose.yaml"


def services() -> dict[str, Any]:
    """All services by name."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


def node_names() -> list[str]:
    """The services that are nodes."""
    return [name for name in services() if name != "prometheus"]
