"""Caches that are not copied with their owner."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class NotCopiedCache(dict[Any, Any]):
    """A cache whose copies are empty, whether shallow, deep or pickled.

    A copy of the owner is made to be changed, and the cached values belong to the tensors of the
    original.
    """

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Make `copy` and `pickle` produce an empty cache."""
        return type(self), ()


class NotCopied(Generic[T]):
    """An attribute that copies of its owner do not have; None if it was not set."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Record the name of the attribute."""
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T | None:
        """Return the value."""
        kept: NotCopiedCache = vars(instance).get("_not_copied", NotCopiedCache())
        return kept.get(self._name)

    def __set__(self, instance: object, value: T | None) -> None:
        """Set the value."""
        vars(instance).setdefault("_not_copied", NotCopiedCache())[self._name] = value


class Derived(NotCopiedCache):
    """Values computed from a state, such as the solution of a head, cached until the state changes.

    The owner clears the cache whenever the state changes: `Strategy` on learning, forgetting,
    merging, loading and moving to another device.

    >>> derived = Derived()
    >>> derived.get_or_compute("answer", lambda: 42)
    42
    >>> import copy
    >>> copy.deepcopy({"derived": derived})
    {'derived': {}}
    """

    def get_or_compute(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value cached under `key`; compute and cache it first if there is none.

        If another thread clears the cache in the meantime, the value is returned nevertheless.

        Args:
            key: The name of the value.
            compute: Computes the value. If it raises, nothing is cached.

        Returns:
            The value.
        """
        missing = object()
        found = self.get(key, missing)
        if found is missing:
            found = self[key] = compute()
        return found  # type: ignore[no-any-return]
