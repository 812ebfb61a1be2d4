"""Paged KV blocks with a prefix cache: the owner of blocks.

A request holds a table of fixed-size blocks (PagedAttention, Kwon et al., SOSP'23). Full blocks are
named by a hash over all tokens before their end, as soon as they are scheduled, so that requests
with equal prefixes share them; freed blocks keep their name until they are handed out again, the
least recently used first. Allocation is all or nothing. At an admission the blocks must hold all
known tokens of the request (`reserve_full_prompt`), a `watermark` stays free while anything runs,
and a load from external KV leaves room for the prefills under way.

    pool.py     reference counts, the free queue, hashes on blocks
    owner.py    tables, the fit tests, the hooks
    view.py     what policies may see
"""

from plugins.kv_blocks.owner import KvBlocks

__all__ = ["KvBlocks"]
