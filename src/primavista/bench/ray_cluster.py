"""The connection to a Ray cluster: to one that runs, or to a new one on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from primavista.errors import InputError, require_extra


@contextmanager
def ray_cluster(address: str = "") -> Iterator[Any]:
    """Connect to a Ray cluster, and disconnect at the end if there was no connection before.

    A cluster that is started here listens on the loopback interface only, and needs a token. The
    nodes of a cluster send each other pickled objects: connect only to one that you trust.

    Args:
        address: "ray://HOST:PORT", or "" for the cluster of this machine that `ray start` began or
            RAY_ADDRESS names; one is started if there is none.

    Yields:
        The module `ray`, connected to the cluster.

    Raises:
        InputError: If no cluster answers.
        MissingExtraError: If Ray is not installed.
    """
    ray = _import_ray(on_loopback=not address)
    ours = not ray.is_initialized()
    try:
        if ours:
            _connect(ray, address)
        yield ray
    finally:
        # also if no cluster answered: Ray would stay in client mode and connect to no other one
        if ours:
            ray.shutdown()


def _import_ray(on_loopback: bool) -> Any:
    """Import Ray, which decides then whether clusters that it starts listen on loopback only."""
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    if not on_loopback or name in os.environ:
        return require_extra("ray", "ray")
    os.environ[name] = "0"
    try:
        return require_extra("ray", "ray")
    finally:
        del os.environ[name]


def _connect(ray: Any, address: str) -> None:
    quiet = {"logging_level": "warning", "log_to_driver": False, "configure_logging": False}
    try:
        ray.init(address or None, **quiet)
        with suppress(OSError, RuntimeError):  # no file, a file of another owner, or no home
            # Ray creates the file of its token with the usual permissions
            (Path.home() / ".ray" / "auth_token").chmod(0o600)
    except (ConnectionError, RuntimeError, ValueError) as error:
        place = address or "this machine"
        raise InputError(f"no Ray cluster at {place}: {error}") from error
