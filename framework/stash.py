"""Stash: typed storage for plugin data on a request, after pytest's idea of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
D = TypeVar("D")


class StashKey(Generic[T]):
    """A key that only its creator holds, so two plugins never collide."""

    __slots__ = ()


class Stash:
    """`stash[key]` reads and writes a value of the key's type; a missing key is a KeyError."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[StashKey[Any], Any] = {}

    def __setitem__(self, key: StashKey[T], value: T) -> None:
        self._values[key] = value

    def __getitem__(self, key: StashKey[T]) -> T:
        value: T = self._values[key]
        return value

    def __delitem__(self, key: StashKey[T]) -> None:
        del self._values[key]

    def __contains__(self, key: StashKey[T]) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: StashKey[T], default: D) -> T | D:
        """The value stored under `key`, or `default`."""
        value: T | D = self._values.get(key, default)
        return value

    def only(self, keys: Iterable[StashKey[Any]]) -> Stash:
        """A new stash with what is stored under these keys, and nothing else."""
        stash = Stash()
        stash._values = {key: self._values[key] for key in keys if key in self._values}
        return stash
