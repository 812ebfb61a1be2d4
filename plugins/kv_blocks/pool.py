"""BlockPool: reference counts, the free queue, and which hash sits on which block.

    free queue    [ handed out next ... handed out last ]
                    ^ unhashed blocks     ^ hashed blocks that become free (least recently used
                      return here           ones are nearer to the head)

Block 0 is reserved and never handed out. A hash is dropped when its block is handed out again,
not when it is freed, so an idle block can still be hit. The same hash may sit on two blocks; the
one registered first is found.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class BlockPool:
    """Blocks 1 .. num_blocks - 1."""

    def __init__(self, num_blocks: int, *, caching: bool) -> None:
        self.num_blocks = num_blocks
        self.caching = caching
        self.ref_counts = [0] * num_blocks
        self.version = 0
        """Goes up whenever what can be found changes."""
        # With caching a block may leave the middle of the queue; without, the queue is a stack.
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._stack: list[int] = []
        if caching:
            self._queue = OrderedDict.fromkeys(range(1, num_blocks))
        else:
            self._stack = list(range(num_blocks - 1, 0, -1))
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._found: dict[bytes, int] = {}
        self._twins: dict[bytes, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Blocks nobody holds, idle hashed ones included."""
        return len(self._queue) if self.caching else len(self._stack)

    def take(self, count: int) -> list[int]:
        """Hand out `count` blocks from the head; the caller has checked that they are there."""
        refs, queue, stack = self.ref_counts, self._queue, self._stack
        taken = []
        for _ in range(count):
            block = queue.popitem(last=False)[0] if self.caching else stack.pop()
            if self._hashes[block] is not None:
                self.forget(block)
            refs[block] = 1
            taken.append(block)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """One more holder for each of these hit blocks."""
        refs, queue = self.ref_counts, self._queue
        for block in blocks:
            if refs[block] == 0:
                del queue[block]
            refs[block] += 1

    def give_back(self, table: Sequence[int]) -> None:
        """One holder less for each block of a table; those with none left become free."""
        refs = self.ref_counts
        free: list[int] = []
        for block in table:
            refs[block] -= 1
            if refs[block] == 0:
                free.append(block)
        if not self.caching:
            self._stack.extend(free)
            return
        queue, hashes = self._queue, self._hashes
        for block in free:
            if hashes[block] is None:
                queue[block] = None
                queue.move_to_end(block, last=False)
        for block in reversed(free):
            if hashes[block] is not None:
                queue[block] = None

    def find(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks first registered under these hashes, up to the first that is on none."""
        found, get = [], self._found.get
        for block_hash in hashes:
            block = get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def hash_of(self, block: int) -> bytes | None:
        """The hash that sits on the block, or None."""
        return self._hashes[block]

    def register(self, blocks: Iterable[int], hashes: Iterable[bytes]) -> None:
        """Let others find these blocks; one that carries a hash keeps it."""
        names, found = self._hashes, self._found
        self.version += 1
        for block, block_hash in zip(blocks, hashes, strict=True):
            if names[block] is None:
                names[block] = block_hash
                if found.setdefault(block_hash, block) != block:
                    self._twins.setdefault(block_hash, []).append(block)

    def forget(self, block: int) -> None:
        """Drop the hash of a block; a twin is found in its stead."""
        block_hash = self._hashes[block]
        if block_hash is None:
            return
        self._hashes[block] = None
        self.version += 1
        twins = self._twins.get(block_hash)
        if self._found[block_hash] != block:
            assert twins is not None
            twins.remove(block)
        elif twins:
            self._found[block_hash] = twins.pop(0)
        else:
            del self._found[block_hash]
        if twins is not None and not twins:
            self._twins.pop(block_hash, None)

    def free_ids(self) -> list[int]:
        """Free blocks, next to be handed out first."""
        return list(self._queue) if self.caching else self._stack[::-1]

    def hashed_ids(self) -> list[int]:
        """Blocks that carry a hash, used or free."""
        return [block for block, name in enumerate(self._hashes) if name is not None]

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless counts, tables, queue and hashes agree."""
        held = [0] * self.num_blocks
        for table in tables:
            for block in table:
                held[block] += 1
        assert held == self.ref_counts, "reference counts differ from the live block tables"
        free = self.free_ids()
        expected = {block for block in range(1, self.num_blocks) if not held[block]}
        assert len(free) == len(set(free)) == len(expected), "the free queue holds a block twice"
        assert set(free) == expected, "the free queue is not exactly the unheld blocks"
        for name, block in self._found.items():
            assert self._hashes[block] == name, f"hash found on block {block} does not sit on it"
        named = len(self._found) + sum(map(len, self._twins.values()))
        assert named == len(self.hashed_ids()), "a hashed block cannot be found"
