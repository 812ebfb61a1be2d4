"""KvBlocks: who holds which block, all-or-nothing allocation, and when a block gets its name.

The room that the next token needs is decided here and published as `request.num_slots`, so the
core asks again only when a new block, or a newly full one, is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field
from attrs.validators import ge, instance_of, le

from framework import Hit, Request, SchedulerConfig, StashKey, StepView, hookimpl
from framework.hashing import BlockHashes
from plugins.kv_blocks.pool import BlockPool
from plugins.kv_blocks.view import PoolView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HASHES: StashKey[BlockHashes] = StashKey()
_EMPTY: list[int] = []


@define(eq=False)
class Table:
    """Blocks of one request, in order.

    Attributes:
        num_published: leading blocks that carry their hash.
        num_settled: those of them whose content is there, whatever becomes of this step.
    """

    blocks: list[int] = field(factory=list)
    num_published: int = 0
    num_settled: int = 0


@define(eq=False)
class KvBlocks:
    """Paged KV blocks with a prefix cache (vLLM's PagedAttention, SOSP'23, as in its V1 engine).

    Args:
        enable_prefix_caching: let requests share full blocks with equal content.
        reserve_full_prompt: admit only what fits with all its known tokens.
        watermark: share of the pool kept free at admissions while anything runs, 0 to 1.
        num_lookahead_tokens: slots past the scheduled tokens (a drafter with KV of its own).
        zero_new_blocks: tell the runner to zero fresh blocks.
    """

    enable_prefix_caching: bool = field(default=True, validator=instance_of(bool))
    reserve_full_prompt: bool = field(default=True, validator=instance_of(bool))
    watermark: float = field(default=0.0, validator=[instance_of((int, float)), ge(0), le(1)])
    num_lookahead_tokens: int = field(default=0, validator=[instance_of(int), ge(0)])
    zero_new_blocks: bool = field(default=False, validator=instance_of(bool))

    pool: BlockPool = field(init=False)
    block_size: int = field(default=0, init=False)
    max_model_len: int = field(default=0, init=False)
    _num_spec_tokens: int = field(default=0, init=False)
    _num_reserved: int = field(default=0, init=False)
    _tables: dict[Request, Table] = field(factory=dict, init=False)
    _to_zero: list[int] = field(factory=list, init=False)

    @hookimpl
    def kv_view(self, config: SchedulerConfig) -> PoolView:
        """Build the pool."""
        self.pool = BlockPool(config.num_blocks, caching=self.enable_prefix_caching)
        self.block_size = config.block_size
        self.max_model_len = config.max_model_len
        self._num_spec_tokens = config.num_spec_tokens
        self._num_reserved = int(self.watermark * config.num_blocks)
        return PoolView(self)

    @hookimpl
    def match_prefix(self, request: Request) -> Hit | None:
        """The longest cached run of full blocks that leaves a token to compute."""
        found = self.match(request)
        return Hit(len(found) * self.block_size, blocks=found) if found else None

    @hookimpl
    def allocate(
        self, request: Request, num_new_tokens: int, hit: Hit | None, step: StepView
    ) -> list[int] | bool:
        """All or nothing; an admission must pass the tests of `_has_room` first."""
        if hit is None:
            return self._extend(request, num_new_tokens)
        table = self._tables.get(request) or Table()
        end = request.num_computed_tokens + num_new_tokens
        if num_new_tokens:
            end = min(end + self.num_lookahead_tokens, self.max_model_len)
        needed = max(0, self._num_blocks(end) - len(table.blocks) - len(hit.blocks))
        if not self._has_room(request, hit, needed, len(table.blocks), step):
            return False
        self.pool.touch(hit.blocks)
        fresh = self.pool.take(needed)
        table.blocks += hit.blocks
        table.blocks += fresh
        table.num_published += len(hit.blocks)
        self._tables[request] = table
        if self.zero_new_blocks:
            self._to_zero += fresh
        if not hit.is_async:
            self._publish(request, table, request.num_computed_tokens + num_new_tokens)
        self._set_slots(request, table)
        return fresh

    def _extend(self, request: Request, num_new_tokens: int) -> list[int] | bool:
        """A running request: only the free blocks limit it. Called once or twice a block."""
        table, size = self._tables[request], self.block_size
        blocks = table.blocks
        end = request.num_computed_tokens + num_new_tokens
        needed = -(-min(end + self.num_lookahead_tokens, self.max_model_len) // size) - len(blocks)
        fresh: list[int] = []
        if needed > 0:
            if needed > self.pool.num_free:
                return False
            fresh = self.pool.take(needed)
            blocks += fresh
            if self.zero_new_blocks:
                self._to_zero += fresh
        if self.enable_prefix_caching and end >= (table.num_published + 1) * size:
            self._publish(request, table, end)
        self._set_slots(request, table)
        return fresh

    @hookimpl
    def publish(self, request: Request, num_tokens: int) -> None:
        """Hash what is full among the first `num_tokens`."""
        table = self._tables[request]
        self._publish(request, table, num_tokens)
        table.num_settled = table.num_published
        self._set_slots(request, table)

    @hookimpl
    def withdraw(self, request: Request, block_ids: list[int]) -> None:
        """Unhash what is not computed, and give the new blocks back."""
        table = self._tables[request]
        self._unpublish(request, table)
        if block_ids:
            del table.blocks[-len(block_ids) :]
            self.pool.give_back(block_ids)
        self._set_slots(request, table)

    @hookimpl
    def release(self, request: Request) -> None:
        """Give the whole table back, its end first; what was computed can still be hit."""
        table = self._tables.pop(request, None)
        if table is not None:
            self.pool.give_back(table.blocks)
            self._unpublish(request, table)

    @hookimpl
    def reset_prefix_cache(self) -> bool:
        """Only while all blocks are free."""
        if self.pool.num_free < self.pool.num_blocks - 1:
            return False
        for block in self.pool.hashed_ids():
            self.pool.forget(block)
        return True

    @hookimpl
    def extend_output(self) -> Mapping[str, object] | None:
        """Fresh blocks to zero, where asked for."""
        if not self._to_zero:
            return None
        blocks, self._to_zero = self._to_zero, []
        return {"new_block_ids_to_zero": blocks}

    def table(self, request: Request) -> list[int]:
        """The request's live block table; empty if it holds none."""
        table = self._tables.get(request)
        return table.blocks if table is not None else _EMPTY

    @property
    def num_tables(self) -> int:
        """Requests that hold blocks."""
        return len(self._tables)

    def all_tables(self) -> Iterable[list[int]]:
        """Every live block table."""
        return (table.blocks for table in self._tables.values())

    def match(self, request: Request) -> list[int]:
        """Cached blocks of the request's leading tokens, one of its tokens left out."""
        if not self.enable_prefix_caching:
            return _EMPTY
        most = (request.num_tokens - 1) // self.block_size
        return self.pool.find(self._hashes(request).up_to(most)[:most])

    def would_fit(self, request: Request, step: StepView) -> bool:
        """Whether an admission of everything the request knows would find blocks now."""
        held = len(self.table(request))
        hit = Hit(blocks=[] if held else self.match(request))
        needed = self._num_blocks(request.num_tokens) - held - len(hit.blocks)
        return self._has_room(request, hit, max(0, needed), held, step)

    def _has_room(
        self, request: Request, hit: Hit, needed: int, num_held: int, step: StepView
    ) -> bool:
        """Hit blocks that lie idle in the free queue are spent too; see the package's page."""
        refs, free = self.pool.ref_counts, self.pool.num_free
        idle = [refs[block] for block in hit.blocks].count(0)
        spare = self._num_reserved if step.num_running else 0
        if self.reserve_full_prompt:
            whole = self._num_blocks(request.num_tokens) - num_held - len(hit.blocks)
            if whole + idle + spare > free:
                return False
        if hit.is_async:
            spare += self._room_for_others(step)
            if self._num_spec_tokens:  # but no more than the whole pool has, or it waits for ever
                most = self.pool.num_blocks - 1 - self._num_blocks(request.num_tokens)
                spare += min(self._num_blocks(1 + self._num_spec_tokens), most)
        return bool(needed + idle + spare <= free)

    def _room_for_others(self, step: StepView) -> int:
        """Blocks that loads under way and unfinished prefills still need (a load must not take
        them: two that wait for each other's blocks would never end)."""
        drafts = 1 + self._num_spec_tokens + self.num_lookahead_tokens
        extra = drafts if self._num_spec_tokens else 0
        others = {
            *step.loading,
            *step.running_prefills(),
            *step.partly_admitted(),
            *step.landed(),
        }
        return sum(
            max(0, self._num_blocks(other.num_tokens + extra) - len(self.table(other)))
            for other in others
        )

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _hashes(self, request: Request) -> BlockHashes:
        hashes = request.stash.get(_HASHES, None)
        if hashes is None:
            hashes = request.stash[_HASHES] = BlockHashes(request, self.block_size)
        return hashes

    def _publish(self, request: Request, table: Table, num_tokens: int) -> None:
        """Register full blocks among the first `num_tokens`; drafts do not count."""
        if not self.enable_prefix_caching:
            return
        full = min(num_tokens, request.num_tokens) // self.block_size
        if full <= table.num_published:
            return
        hashes = self._hashes(request).up_to(full)
        first = table.num_published
        self.pool.register(table.blocks[first:full], hashes[first:full])
        table.num_published = full

    def _unpublish(self, request: Request, table: Table) -> None:
        """No hash may stay on what was not computed. (The peer's stays, and can be hit; the place
        in the free queue is the same.)"""
        computed = max(request.num_computed_tokens // self.block_size, table.num_settled)
        for index in range(computed, table.num_published):
            self.pool.forget(table.blocks[index])
        table.num_published = min(table.num_published, computed)

    def _set_slots(self, request: Request, table: Table) -> None:
        """Up to where the blocks reach, and no full block is without its name."""
        reach = len(table.blocks) * self.block_size
        slots = (
            self.max_model_len
            if reach >= self.max_model_len
            else (reach - self.num_lookahead_tokens)
        )
        if self.enable_prefix_caching:
            next_full = (table.num_published + 1) * self.block_size
            slots = slots if slots < next_full else next_full - 1
        request.num_slots = slots
