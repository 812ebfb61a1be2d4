"""PoolView: the read-only face of the pool that policies see as `step.kv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from framework import Request, StashKey

if TYPE_CHECKING:
    from framework import StepView
    from plugins.kv_blocks.owner import KvBlocks

_PEEKED: StashKey[tuple[int, int, int]] = StashKey()


class PoolView:
    """Implements framework's KvView."""

    def __init__(self, owner: KvBlocks) -> None:
        self._owner = owner

    @property
    def num_total_blocks(self) -> int:
        """Block 0 is reserved."""
        return self._owner.pool.num_blocks - 1

    @property
    def num_free_blocks(self) -> int:
        """Idle cached blocks count as free."""
        return self._owner.pool.num_free

    @property
    def max_num_tokens(self) -> int:
        """All blocks, less the lookahead slots."""
        owner = self._owner
        return self.num_total_blocks * owner.block_size - owner.num_lookahead_tokens

    def num_blocks_needed(self, num_tokens: int) -> int:
        """Lookahead slots included."""
        owner = self._owner
        end = min(num_tokens + owner.num_lookahead_tokens, owner.max_model_len)
        return -(-max(num_tokens, end) // owner.block_size)

    def block_ids(self, request: Request) -> list[int]:
        """A copy of the table."""
        return list(self._owner.table(request))

    def computed_block_ids(self, request: Request) -> list[int]:
        """Blocks with computed tokens, the last one perhaps partly."""
        count = -(-request.num_computed_tokens // self._owner.block_size)
        return self._owner.table(request)[:count]

    def num_freeable_blocks(self, request: Request) -> int:
        """Blocks that only this request holds."""
        refs = self._owner.pool.ref_counts
        return sum(refs[block] == 1 for block in self._owner.table(request))

    def num_shared_blocks(self, request: Request) -> int:
        """Blocks with more than one holder."""
        refs = self._owner.pool.ref_counts
        return sum(refs[block] > 1 for block in self._owner.table(request))

    def peek_prefix(self, request: Request) -> int:
        """Kept until blocks move or the request grows."""
        version, length = self._owner.pool.version, request.num_tokens
        known = request.stash.get(_PEEKED, None)
        if known is not None and known[:2] == (version, length):
            return known[2]
        found = len(self._owner.match(request)) * self._owner.block_size
        request.stash[_PEEKED] = (version, length, found)
        return found

    def num_common_prefix_blocks(self, running: Sequence[Request]) -> int:
        """Leading blocks whose count of holders is the number of running requests."""
        if not running:
            return 0
        refs, holders, common = self._owner.pool.ref_counts, len(running), 0
        first = self._owner.table(running[0])
        for block in first:
            if refs[block] != holders:
                break
            common += 1
        if common and self._owner.num_tables > holders:  # the holders may be others
            for request in running:
                while self._owner.table(request)[:common] != first[:common]:
                    common -= 1
        return common

    def fits(self, request: Request, step: StepView) -> bool:
        """The test of `allocate` for a whole admission, without taking anything."""
        return self._owner.would_fit(request, step)

    def can_withdraw(self, request: Request) -> bool:
        """No other holder on a block that is findable but not computed yet."""
        owner = self._owner
        pool, first = owner.pool, request.num_computed_tokens // owner.block_size
        return not any(
            pool.ref_counts[block] > 1 and pool.hash_of(block) is not None
            for block in owner.table(request)[first:]
        )

    def free_block_ids(self) -> list[int]:
        """Next to be handed out first."""
        return self._owner.pool.free_ids()

    def reusable_block_ids(self) -> list[int]:
        """Blocks with a hash, used or free."""
        return self._owner.pool.hashed_ids()

    def check_integrity(self) -> None:
        """Raise AssertionError unless pool and tables agree."""
        self._owner.pool.check_integrity(self._owner.all_tables())
