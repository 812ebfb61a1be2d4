"""KV offload: full blocks of requests that left are kept in host memory and loaded again.

The plugin keeps the catalogue (which block names are stored, least recently used first); the
runner keeps the bytes and moves them as the step's connector metadata says: stores before anything
is overwritten, then loads. A request whose blocks are being stored keeps them until the step has
been handed out and reported back (delayed free); a name whose store is on its way is answered
LATER. With `load="async"` a request waits for its load with its blocks and without a slot.
Hooks: lookup_external, external_allocated, store_external, may_release, extend_output,
scheduler_built.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from attrs import define, field
from attrs.validators import ge, in_, instance_of

from framework import (
    LATER,
    Answer,
    ConnectorMetadata,
    ExternalHit,
    Hit,
    Request,
    Setup,
    StashKey,
    StepView,
    hookimpl,
)
from framework.hashing import BlockHashes

_HASHES: StashKey[BlockHashes] = StashKey()
Loads: TypeAlias = list[tuple[bytes, int]]


@define(eq=False)
class KvOffload:
    """An in-memory store behind the pool.

    Args:
        capacity: blocks that the store holds.
        load: "sync", the load runs in the step of the admission; "async", before it.
    """

    capacity: int = field(default=4096, validator=[instance_of(int), ge(1)])
    load: str = field(default="sync", validator=in_(("sync", "async")))
    _block_size: int = field(default=0, init=False)
    _stored: OrderedDict[bytes, int] = field(factory=OrderedDict, init=False)
    """{name: step in which its store is handed out}"""
    _sending: dict[str, int] = field(factory=dict, init=False)
    _step: int = field(default=0, init=False)
    _loads: dict[Request, Loads] = field(factory=dict, init=False)
    _next: ConnectorMetadata = field(factory=ConnectorMetadata, init=False)
    _last: tuple[int, ConnectorMetadata, dict[Request, Loads]] | None = field(
        default=None, init=False
    )

    @hookimpl
    def scheduler_built(self, setup: Setup) -> None:
        """Learn the block size."""
        self._block_size = setup.config.block_size

    @hookimpl
    def lookup_external(self, request: Request, hit: Hit) -> ExternalHit | Answer | None:
        """Stored blocks that follow the local hit."""
        size, is_async = self._block_size, self.load == "async"
        first = hit.num_local_tokens // size
        most = (request.num_tokens - (0 if is_async else 1)) // size
        names = self._names(request, most)[first:most]
        found = 0
        for name in names:
            handed_out = self._stored.get(name)
            if handed_out is None:
                break
            if handed_out >= self._step:
                return LATER
            found += 1
        return ExternalHit(found * size, is_async) if found else None

    @hookimpl
    def external_allocated(self, request: Request, block_ids: list[int], hit: Hit) -> None:
        """Plan the load, in the place of one whose plan was dropped."""
        self._loads.pop(request, None)
        if self._last is not None:
            self._last[2].pop(request, None)
        if not hit.num_external_tokens:
            return
        first = hit.num_local_tokens // self._block_size
        last = hit.num_tokens // self._block_size
        names = self._names(request, last)
        for name in names[first:last]:
            if name in self._stored:  # else dropped in this step, after the load
                self._stored.move_to_end(name)
        self._loads[request] = [(names[index], block_ids[index]) for index in range(first, last)]

    @hookimpl
    def store_external(self, request: Request, block_ids: list[int]) -> None:
        """Store the full blocks that are not stored yet."""
        full = min(request.num_computed_tokens, request.num_tokens) // self._block_size
        names = self._names(request, full)
        fresh = [index for index in range(full) if names[index] not in self._stored]
        for index in fresh:
            self._stored[names[index]] = self._step
            self._next.stores.append((names[index], block_ids[index]))
        if fresh and request.is_finished:
            self._sending[request.request_id] = self._step
            self._next.sending.append(request.request_id)
        while len(self._stored) > self.capacity:
            self._next.drop.append(self._stored.popitem(last=False)[0])

    @hookimpl
    def may_release(self, request: Request) -> bool:
        """Not before the step that stores its blocks has been handed out."""
        return self._sending.get(request.request_id, -1) < self._step

    @hookimpl
    def extend_output(self, step: StepView) -> Mapping[str, object] | None:
        """Hand the transfers out; a plan that was dropped has handed nothing out."""
        if self._last is not None and self._last[0] == step.number:
            self._next.put_first(self._last[1])
            self._loads = {**self._last[2], **self._loads}
        loads, self._loads = self._loads, {}
        metadata, self._next = self._next, ConnectorMetadata()
        self._last = (step.number, metadata, loads)
        self._step = step.number + 1
        self._sending = {name: at for name, at in self._sending.items() if at >= self._step}
        loading = set(step.loading)
        out = metadata.copy()
        out.drop = [name for name in dict.fromkeys(out.drop) if name not in self._stored]
        for request, blocks in loads.items():
            if request in loading:
                out.receiving.append(request.request_id)
            elif request not in step.admitted:
                if request.is_finished and step.kv and step.kv.block_ids(request):
                    out.receiving.append(request.request_id)  # its blocks wait for the report
                continue
            out.loads.extend(blocks)
        return None if out.is_empty else {"connector_metadata": out}

    def _names(self, request: Request, num_blocks: int) -> list[bytes]:
        hashes = request.stash.get(_HASHES, None)
        if hashes is None:
            hashes = request.stash[_HASHES] = BlockHashes(request, self._block_size)
        return hashes.up_to(num_blocks)
