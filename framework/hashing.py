"""Names of full blocks: a running sha256 over everything up to the end of the block.

The stream starts with the tagged, length-prefixed extra keys (adapter, salt), so that an adapter
and a salt of the same text never meet; an empty adapter or salt counts as none. Images are mixed
in with the block that their first placeholder lies in.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.request import Request


class BlockHashes:
    """The hashes of one request's full blocks, computed as they are asked for."""

    __slots__ = ("_block_size", "_request", "_state", "hashes")

    def __init__(self, request: Request, block_size: int) -> None:
        self._request = request
        self._block_size = block_size
        self.hashes: list[bytes] = []
        self._state = sha256()
        for tag, text in ((b"adapter", request.adapter), (b"salt", request.cache_salt)):
            if text:
                encoded = text.encode()
                self._state.update(b"%s:%d:%s" % (tag, len(encoded), encoded))
        self._state.update(b"images" if request.encoder_inputs else b"tokens")

    def up_to(self, num_blocks: int) -> list[bytes]:
        """At least the first `num_blocks` hashes; the request knows that many full blocks."""
        done, size = len(self.hashes), self._block_size
        if done >= num_blocks:
            return self.hashes
        state, add = self._state, self.hashes.append
        tokens = array("I", self._request.all_token_ids[done * size : num_blocks * size])
        view, step = memoryview(tokens).cast("B"), size * tokens.itemsize
        for start in range(0, len(view), step):
            state.update(view[start : start + step])
            if self._request.encoder_inputs:
                state.update(self._images(len(self.hashes)))
            add(state.digest())
        return self.hashes

    def _images(self, block: int) -> bytes:
        first, last = block * self._block_size, (block + 1) * self._block_size
        names = [
            b"%d:%d:%s" % (item.position, len(item.content_id.encode()), item.content_id.encode())
            for item in self._request.encoder_inputs
            if first <= item.position < last
        ]
        return b"%d;" % len(names) + b"".join(names)
