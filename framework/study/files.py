"""Text files of traces, plain or compressed."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

from framework.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_text(path: str | Path) -> Iterator[IO[str]]:
    """A file for reading, decompressed where its name ends in .gz.

    Raises:
        ConfigError: it does not exist, or is no text.
    """
    place = Path(path)
    if not place.is_file():
        raise ConfigError(f"workload: there is no file {str(path)!r}")
    opened = gzip.open if place.suffix == ".gz" else open
    try:
        with opened(place, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"workload: {str(path)!r} cannot be read: {error}") from error


def digest_of(path: str | Path) -> str:
    """Of a file's contents as they lie there."""
    return sha256(Path(path).read_bytes()).hexdigest()[:16]
