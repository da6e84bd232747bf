"""Client quotas: the valid entities and keys, and the matches of a filter (KIP-546). Pure.

`broker.quotas.client_quotas` and `broker.network.connection_limits` enforce them.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvorum.metadata.configs.model import INT32_MAX, INT64_MAX, ConfigType
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import QuotaEntity
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.text import percent_escaped

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

_OF_CLIENTS: Mapping[str, ConfigType] = {
    "consumer_byte_rate": ConfigType.LONG,
    "controller_mutation_rate": ConfigType.DOUBLE,
    "producer_byte_rate": ConfigType.LONG,
    "request_percentage": ConfigType.DOUBLE,
}
_OF_ADDRESSES: Mapping[str, ConfigType] = {"connection_creation_rate": ConfigType.INT}

_IN_NAMES = re.compile(r"[%,=<\x00-\x1f\x7f]")

_MAXIMA = {ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """One component of a filter.

    match_type: MATCH_EXACT (then match is a name), MATCH_DEFAULT or MATCH_ANY (then match is None).
    """

    entity_type: str
    match_type: int
    match: str | None = None


def canonical(entity: QuotaEntity) -> QuotaEntity:
    """The entity in its stored order: by type."""
    return tuple(sorted(entity, key=lambda part: part[0]))


def entity_text(entity: QuotaEntity) -> str:
    """`client-id=app,user=<default>`: a text for an entity of client quotas, unique to it.

    Separators and control characters within names are percent-escaped, as in a URL.
    """
    return ",".join(
        f"{kind}={'<default>' if name is None else percent_escaped(name, _IN_NAMES)}"
        for kind, name in entity
    )


def entity_problem(entity: QuotaEntity) -> Rejected | None:
    """The refusal of an invalid entity, None for a valid one."""
    if not entity:
        return _invalid("Invalid empty client quota entity")
    types = [entity_type for entity_type, _ in entity]
    for entity_type, name in entity:
        if entity_type not in ENTITY_TYPES:
            return _invalid(
                f"Unhandled client quota entity type: {entity_type!r}; "
                f"there are {', '.join(ENTITY_TYPES)}"
            )
        if types.count(entity_type) > 1:
            return _invalid(f"the entity names its {entity_type} more than once")
        if name == "":
            return _invalid(f"empty {entity_type} name; the default entity has none (null)")
    if IP in types:
        if len(types) > 1:
            return _invalid("an ip cannot be combined with a user or a client-id")
        address = entity[0][1]
        if address is not None and not _is_address(address):
            return _invalid(f"{address!r} is not an IP address")
    return None


def quota_problem(entity: QuotaEntity, key: str, value: float | None) -> Rejected | None:
    """The reason to refuse this value of a quota, or the quota's removal if value is None; None if
    the change is valid. entity: a valid one."""
    known = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    kind = known.get(key)
    if kind is None:
        return _invalid(f"Invalid configuration key {key}; for this entity: {', '.join(known)}")
    if value is None:
        return None
    if not math.isfinite(value) or value <= 0:
        return _invalid(f"Quota {key} must be greater than 0, not {value}")
    maximum = _MAXIMA.get(kind)
    if maximum is not None:
        if value > maximum:
            return _invalid(f"Proposed value for {key} is too large: {value:.0f}")
        if value != int(value):
            return _invalid(f"{key} must be a whole number, not {value}")
    return None


def filter_problem(components: tuple[QuotaFilter, ...]) -> Rejected | None:
    """The refusal of an invalid filter, None for a valid one."""
    types = [component.entity_type for component in components]
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            return _invalid("Invalid empty entity type.")
        if types.count(entity_type) > 1:
            return _invalid(
                f"Entity type {entity_type} cannot appear more than once in the filter."
            )
        if entity_type not in ENTITY_TYPES:
            return Rejected(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Custom entity type {entity_type!r} is not supported",
            )
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            return _invalid(f"Unknown match type {component.match_type}")
        if (component.match_type == MATCH_EXACT) != (component.match is not None):
            return _invalid(
                f"match type {component.match_type} of {entity_type} does not go with the match "
                f"{component.match!r}: an exact one (0) needs a name, the others have none"
            )
    if IP in types and len(types) > 1:
        return _invalid(
            "Invalid entity filter component combination: ip goes with neither user nor client-id"
        )
    return None


def matching(
    image: ClusterImage, components: tuple[QuotaFilter, ...], *, is_strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """Entities that every component matches, with their quotas, in order.

    is_strict: only entities without a part of another type.
    components: valid ones.
    """
    found = [
        (entity, quotas)
        for entity, quotas in image.client_quotas.items()
        if _matches(dict(entity), components) and not (is_strict and len(entity) != len(components))
    ]
    yield from sorted(found, key=lambda item: [(t, n is not None, n or "") for t, n in item[0]])


def _matches(entity: dict[str, str | None], components: tuple[QuotaFilter, ...]) -> bool:
    for component in components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        if component.match_type == MATCH_EXACT and name != component.match:
            return False
        if component.match_type == MATCH_DEFAULT and name is not None:
            return False
        # "Any specified name" of the protocol includes the default entity, as in Kafka.
    return True


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, message)
