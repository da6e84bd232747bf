"""A config key: its name, type and default, its valid values, and those that this build obeys.

A value is valid if Apache Kafka accepts it. It is served if this build obeys it. A value that is
valid and not served is refused with the reason, so that nobody relies on a setting without an
effect.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from decimal import Decimal

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
"""At most 100 digits: more than any bound has, and fewer than the 4,300 at which `int()` raises."""
_NUMBER = re.compile(r"([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII)
"""Java's decimal forms, with its suffixes for a type."""
_PLAIN_MIN, _PLAIN_MAX = 1e-3, 1e7
"""Java prints a double without an exponent from the first to below the second."""


class ConfigType(enum.IntEnum):
    """Types of config values; Kafka's numbers (DescribeConfigs v3 and later)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(enum.Enum):
    """Where a broker's key may be set while brokers run.

    DYNAMIC: for one broker, or as the default of all.
    CLUSTER: only as the default of all, because the controllers obey it.
    PER_BROKER: only for one broker.
    READ_ONLY: only in the broker's file, read at its start.
    """

    DYNAMIC = "dynamic"
    CLUSTER = "cluster"
    PER_BROKER = "per-broker"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key of topics, brokers, groups or client-metrics subscriptions.

    default: as Kafka prints it, None for none.
    low, high: bounds of a number, inclusive.
    values: the only valid values (of a LIST: of its items), () for any.
    pattern: for each item of a LIST, or for a whole STRING.
    pattern_says: the pattern in words.
    also: valid numbers outside the bounds.
    served: the values that this build obeys, None for all valid ones.
    unserved: what is missing for the others.
    ignored: why every valid value is accepted without an effect, "" for a key that is obeyed.
    broker_name: for a topic's key, the broker property that is its default.
    update: for a broker's key.
    is_internal: shown only where it is set, as Kafka's internal configs.
    coarser: for a broker's number, its properties in larger units, nearest first, each with the
        size of its unit.
    """

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    pattern: str = ""
    pattern_says: str = "* or a list of partition:broker pairs such as 0:101,1:102"
    also: tuple[int, ...] = ()
    served: tuple[str, ...] | None = None
    unserved: str = ""
    ignored: str = ""
    broker_name: str = ""
    update: Update = Update.READ_ONLY
    is_internal: bool = False
    coarser: tuple[tuple[str, int], ...] = ()

    @property
    def is_sensitive(self) -> bool:
        """True if its value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    @property
    def is_fixed(self) -> bool:
        """True if this build obeys one value only, so it cannot be changed."""
        return self.served is not None and len(self.served) < 2

    def problem(self, value: str) -> str | None:
        """A sentence with key and value that says why this value cannot be set, or None."""
        shown = f"{self.name}=<hidden>" if self.is_sensitive else f"{self.name}={value!r}"
        unsound = self._unsound(value)
        if unsound is not None:
            return f"{shown} {unsound}"
        if self.served is not None and self.canonical(value) not in self.served:
            allowed = " or ".join(repr(text) for text in self.served)
            return f"{shown} is not served, {self.unserved}; leave it at {allowed}"
        return None

    def _unsound(self, value: str) -> str | None:
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return None if text.lower() in ("true", "false") else "must be true or false"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                if not _INTEGER.fullmatch(text):
                    return "must be a whole number of at most 100 digits"
                return self._out_of_bounds(int(text))
            case ConfigType.DOUBLE:
                number = _double(text)
                return "must be a number" if number is None else self._out_of_bounds(number)
            case ConfigType.LIST:
                return self._unsound_list(text)
            case _:
                if self.values and text not in self.values:
                    return f"must be one of {', '.join(self.values)}"
                if self.pattern and not re.fullmatch(self.pattern, text):
                    return f"must be {self.pattern_says}"
                return None

    def _unsound_list(self, text: str) -> str | None:
        items = _all_items(text)
        if any(self.values and item not in self.values for item in items):
            return f"must be empty or a list of {', '.join(self.values)}"
        if self.pattern:
            named = [item for item in items if item]
            if named != ["*"] and any(not re.fullmatch(self.pattern, item) for item in named):
                return f"must be {self.pattern_says}"
        return None

    def _out_of_bounds(self, number: float) -> str | None:
        low, high = self.low, self.high
        if high is None:
            high = INT32_MAX if self.type is ConfigType.INT else INT64_MAX
        if low is None:
            low = -high - 1
        if low <= number <= high or number in self.also:
            return None
        also = "".join(f" or be {other}" for other in self.also)
        return f"must lie between {low} and {high}{also}"

    def canonical(self, value: str) -> str:
        """The value as Kafka prints it once it has parsed it; a password, and a value that does not
        parse, as it is."""
        text = value.strip()
        match self.type:
            case ConfigType.PASSWORD:
                return value
            case ConfigType.BOOLEAN:
                return text.lower()
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return str(int(text)) if _INTEGER.fullmatch(text) else value
            case ConfigType.DOUBLE:
                number = _double(text)
                return value if number is None else _double_text(number)
            case ConfigType.LIST:
                items = _all_items(text)
                # Kafka removes duplicates where its own check of the items knows them.
                return ",".join(items if self.pattern else dict.fromkeys(items))
            case _:
                return text


def _double(text: str) -> float | None:
    found = _NUMBER.fullmatch(text)
    return None if found is None else float(found[1])


def _double_text(number: float) -> str:
    """The number as Java's Double.toString prints it: 0.5, 1.0, 1.0E-5."""
    if number == 0 or _PLAIN_MIN <= abs(number) < _PLAIN_MAX or not math.isfinite(number):
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    power = int(exponent) + len(digits) - 1
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{power}"


def _all_items(text: str) -> list[str]:
    """Items of a LIST, empty ones too: Kafka reads `,delete` as a list of two."""
    return [item.strip() for item in text.split(",")] if text else []


def list_items(text: str) -> list[str]:
    """The items of a LIST value: split at commas, trimmed, empty ones dropped."""
    return [item.strip() for item in text.split(",") if item.strip()]


def parse(key: ConfigKey, value: str) -> int | float | bool | str | None:
    """The value in its type, None if it cannot be parsed. Bounds are not checked."""
    text = value.strip()
    match key.type:
        case ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return int(text) if _INTEGER.fullmatch(text) else None
        case ConfigType.DOUBLE:
            return _double(text)
        case _:
            if key.values and any(
                item not in key.values for item in (list_items(text) if key.is_list else [text])
            ):
                return None
            return text


def is_hidden(key: ConfigKey | None) -> bool:
    """True if the values of a config are not shown: it is a password, or not known (None), so that
    it may be anything, as in Kafka."""
    return key is None or key.is_sensitive
