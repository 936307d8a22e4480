"""Caches that copies of their owner do not have; free of torch, since the edge uses them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class NotCopiedCache(dict[Any, Any]):
    """A cache of which every copy is empty, be it shallow, deep or pickled.

    Copies are made to be changed, and what is kept belongs to the tensors of the original.
    """

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Describe a copy to `copy` and `pickle`: an empty one."""
        return type(self), ()


class NotCopied(Generic[T]):
    """An attribute that copies of its owner do not have; None if it was not set."""

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember under which name the attribute is kept."""
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T | None:
        """Return the value."""
        kept: NotCopiedCache = vars(instance).get("_not_copied", NotCopiedCache())
        return kept.get(self._name)

    def __set__(self, instance: object, value: T | None) -> None:
        """Set the value."""
        vars(instance).setdefault("_not_copied", NotCopiedCache())[self._name] = value


class Derived(NotCopiedCache):
    """Values computed from a state, such as the solution of a head, kept until the state changes.

    Its owner clears it in one place whenever the state changes: `Strategy` on learning, forgetting,
    merging, loading and moving to another device.

    >>> derived = Derived()
    >>> derived.get_or_compute("answer", lambda: 42)
    42
    >>> import copy
    >>> copy.deepcopy({"derived": derived})
    {'derived': {}}
    """

    def get_or_compute(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value kept under `key`; compute and keep it first if there is none.

        Another thread may clear the cache meanwhile; the value is returned all the same.

        Args:
            key: the name of the value.
            compute: makes the value. If it raises, nothing is kept.

        Returns:
            The value.
        """
        missing = object()
        found = self.get(key, missing)
        if found is missing:
            found = self[key] = compute()
        return found  # type: ignore[no-any-return]
