"""A map that never changes: each change makes a new one, which shares most with the old one.

The keys lie in buckets, by their hash, and each bucket is a dict. A change copies one bucket and
the tuple of buckets, both about as large as the square root of the map; a small map is one dict.
The order of iteration depends on the hashes and the changes alone, so that the simulator's seeds
repeat. Why this is no library: docs/adr/021-persistent-maps.md.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, Generic, TypeVar, overload

ONE_BUCKET_MAX = 32
"""A map with at most so many keys is made as one dict."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
_Buckets = tuple[dict[K, V], ...]


class Map(Mapping[K, V]):
    """A persistent map. `delete` raises KeyError for a key that is not there."""

    __slots__ = ("_buckets", "_length")

    _buckets: _Buckets[K, V]
    _length: int

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        whole = dict(items)
        self._buckets, self._length = _split(whole), len(whole)

    def __getitem__(self, key: K) -> V:
        buckets = self._buckets
        return buckets[hash(key) % len(buckets)][key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        buckets = self._buckets
        return buckets[hash(key) % len(buckets)].get(key, default)

    def __contains__(self, key: object) -> bool:
        buckets = self._buckets
        return key in buckets[hash(key) % len(buckets)]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._buckets)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Map):
            return NotImplemented
        if len(self._buckets) == len(other._buckets):
            return self._buckets == other._buckets  # shared buckets are not compared
        return self._length == other._length and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Map({dict(self)!r})"

    def set(self, key: K, value: V) -> Map[K, V]:
        mutation = self.mutate()
        mutation[key] = value
        return mutation.finish()

    def delete(self, key: K) -> Map[K, V]:
        mutation = self.mutate()
        del mutation[key]
        return mutation.finish()

    def mutate(self) -> MapMutation[K, V]:
        """Several changes that end in one new map: each bucket is copied once."""
        return MapMutation(self)


class MapMutation(Generic[K, V]):
    """The changes to a map; `finish` gives the new map, and ends them."""

    __slots__ = ("_base", "_copies", "_length")

    def __init__(self, base: Map[K, V]) -> None:
        self._base = base
        self._copies: dict[int, dict[K, V]] = {}
        """The changed buckets, by index."""
        self._length = len(base)

    def __getitem__(self, key: K) -> V:
        return self._bucket_of(key)[key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        return self._bucket_of(key).get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._bucket_of(key)

    def __setitem__(self, key: K, value: V) -> None:
        bucket = self._copy_of(key)
        before = len(bucket)
        bucket[key] = value
        self._length += len(bucket) - before

    def __delitem__(self, key: K) -> None:
        del self._copy_of(key)[key]
        self._length -= 1

    def finish(self) -> Map[K, V]:
        if not self._copies:
            return self._base
        buckets = list(self._base._buckets)
        for index, bucket in self._copies.items():
            buckets[index] = bucket
        self._copies = {}
        if self._length > max(ONE_BUCKET_MAX, 4 * len(buckets) ** 2):
            self._base = Map(chain.from_iterable(map(dict.items, buckets)))
        else:
            self._base = Map.__new__(Map)
            self._base._buckets, self._base._length = tuple(buckets), self._length
        return self._base

    def _bucket_of(self, key: K) -> dict[K, V]:
        buckets = self._base._buckets
        index = hash(key) % len(buckets)
        return self._copies.get(index, buckets[index])

    def _copy_of(self, key: K) -> dict[K, V]:
        buckets = self._base._buckets
        index = hash(key) % len(buckets)
        copy = self._copies.get(index)
        if copy is None:
            copy = self._copies[index] = buckets[index].copy()
        return copy


class _Items(ItemsView[K, V]):
    _mapping: Map[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(map(dict.items, self._mapping._buckets))


class _Values(ValuesView[V]):
    _mapping: Map[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._buckets))


def _split(whole: dict[K, V]) -> _Buckets[K, V]:
    """The buckets of a map: at least as many as the square root of its size. `finish` splits them
    again once they are fewer than half of that."""
    if len(whole) <= ONE_BUCKET_MAX:
        return (whole,)
    count = 1
    while count * count < len(whole):
        count *= 2
    buckets: _Buckets[K, V] = tuple({} for _ in range(count))
    for key, value in whole.items():
        buckets[hash(key) % count][key] = value
    return buckets
