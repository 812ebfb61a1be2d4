"""The admin key that a server makes for itself, and the file where its user's commands find it.

The file's rights are the lock: who may read it may give orders to the server. The standard
library is enough for this module, since `headway swap` does without the extra `serve`.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from framework.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_key() -> str:
    """A key that nobody guesses."""
    return secrets.token_urlsafe(32)


def key_file(port: int) -> Path:
    """Where the key of this user's server at that port lies while it runs."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "headway" / f"admin-{port}.key"


def find_key(port: int) -> str | None:
    """The key of this user's server at that port, or None."""
    try:
        return key_file(port).read_text(encoding="ascii") or None
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home
        return None


@contextmanager
def left_in_file(key: str, port: int) -> Iterator[None]:
    """The key lies where `find_key` looks; at the end it is taken away.

    Raises:
        ConfigError: no file can be written there.
    """
    try:
        path = key_file(port)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"the admin key cannot be written: {error}; set --admin-key or HEADWAY_ADMIN_KEY, or "
            "XDG_RUNTIME_DIR to a folder of yours"
        ) from error
    try:
        yield
    finally:
        if find_key(port) == key:  # a later server of the same port has put its own there
            with suppress(OSError):
                path.unlink()
