"""What a config key is: name, Kafka's type, default, which values are sound, which are served.

Sound is what Apache Kafka would take. Served is what this build obeys: a value that is sound and
not served is refused with the reason, so that nobody relies on a setting that does nothing.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}", re.ASCII)
"""Far more digits than any bound has, and fewer than the 4,300 above which `int()` raises."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class ConfigType(enum.IntEnum):
    """Kafka's numbers (DescribeConfigs v3 and later)."""

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

    DYNAMIC: for one broker and as the default of all. CLUSTER: only as the default of all, since
    it is the controllers who obey it. PER_BROKER: only for one broker. READ_ONLY: in the broker's
    file, at its start.
    """

    DYNAMIC = "dynamic"
    CLUSTER = "cluster"
    PER_BROKER = "per-broker"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key of topics or of brokers.

    default: as Kafka prints it, None for none. low, high: bounds of a number, both inclusive.
    values: the only sound values (of a LIST: of its items), () for any. pattern: what each item of
    a LIST must match, or the whole of a STRING; pattern_says: what that comes to. also: numbers
    that the bounds leave out. served: the values that this build obeys, None for every
    sound one; then `unserved` says what is missing. ignored: why every sound value is accepted and
    changes nothing, "" for a key that is obeyed. broker_name: of a topic's key, the broker property
    that is its default. update: of a broker's key. coarser: of a broker's number, the properties
    that stand in for it in larger units, nearest first, each with the size of its unit.
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
    coarser: tuple[tuple[str, int], ...] = ()

    @property
    def is_sensitive(self) -> bool:
        """Its value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    @property
    def is_fixed(self) -> bool:
        """This build obeys one value only: there is nothing to change."""
        return self.served is not None and len(self.served) < 2

    def problem(self, value: str) -> str | None:
        """Why this value cannot be set, a sentence that names key and value, or None."""
        shown = f"{self.name}=<hidden>" if self.is_sensitive else f"{self.name}={value!r}"
        unsound = self._unsound(value)
        if unsound is not None:
            return f"{shown} {unsound}"
        if self.served is not None and self._canonical(value) not in self.served:
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
                if not _NUMBER.fullmatch(text):
                    return "must be a number"
                return self._out_of_bounds(float(text))
            case ConfigType.LIST:
                return self._unsound_list(text)
            case _:
                if self.values and text not in self.values:
                    return f"must be one of {', '.join(self.values)}"
                if self.pattern and not re.fullmatch(self.pattern, text):
                    return f"must be {self.pattern_says}"
                return None

    def _unsound_list(self, text: str) -> str | None:
        # Empty ones as well: Kafka takes `,delete` for a list of two.
        items = [item.strip() for item in text.split(",")] if text else []
        if self.values and (not items or any(item not in self.values for item in items)):
            return f"must be a list of {', '.join(self.values)}"
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

    def _canonical(self, value: str) -> str:
        text = value.strip()
        if self.type is ConfigType.BOOLEAN:
            return text.lower()
        return ",".join(dict.fromkeys(list_items(text))) if self.is_list else text


def list_items(text: str) -> list[str]:
    """The items of a LIST value: split at commas, trimmed, empty ones dropped."""
    return [item.strip() for item in text.split(",") if item.strip()]


def parse(key: ConfigKey, value: str) -> int | float | bool | str | None:
    """The value as its type says, None if it does not parse. Bounds are not looked at."""
    text = value.strip()
    match key.type:
        case ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            return int(text) if _INTEGER.fullmatch(text) else None
        case ConfigType.DOUBLE:
            return float(text) if _NUMBER.fullmatch(text) else None
        case _:
            if key.values and any(
                item not in key.values for item in (list_items(text) if key.is_list else [text])
            ):
                return None
            return text
