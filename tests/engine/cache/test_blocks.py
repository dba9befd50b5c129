"""KV blocks: found by content, shared by reference, dropped least recently used first."""

import numpy as np
import torch

from engine.cache.blocks import BlockPool, block_keys
from engine.cache.kv import KVCache
from engine.cache.working_set import BLOCK, WorkingSet
from engine.models.qwen3 import StackConfig

CONFIG = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4, 1.0, 256)


def make_cache(blocks=4):
    device = torch.device("cpu")
    working = WorkingSet(CONFIG, 3, 256, torch.float32, device)
    return KVCache(working, BlockPool(CONFIG, blocks, torch.float32, device))


def grid(rows, start=0):
    return np.arange(start, start + 3 * rows, dtype=np.int32).reshape(rows, 3)


def fill(cache, slot, rows):
    torch.manual_seed(slot)
    cache.working.store[:, :, slot, :, :rows] = torch.randn(2, 2, 1, rows, 4)


def test_keys_name_the_whole_context_before_them():
    long = block_keys(grid(50))
    assert len(long) == 3
    assert block_keys(grid(32)) == long[:2]
    assert block_keys(grid(50)[16:], after=long[0]) == long[1:]
    changed = grid(50)
    changed[0, 2] += 1
    assert not set(block_keys(changed)) & set(long)


def test_a_kept_context_comes_back_in_another_slot():
    cache = make_cache()
    fill(cache, 1, 40)
    keys = cache.keep(1, grid(40), [])
    assert len(keys) == 2
    restored = cache.restore(2, grid(48))
    assert restored == keys
    store = cache.working.store
    assert torch.equal(store[:, :, 2, :, : 2 * BLOCK], store[:, :, 1, :, : 2 * BLOCK])
    cache.release(keys)
    cache.release(restored)
    assert cache.pool.referenced == 0


def test_only_what_differs_is_added():
    cache = make_cache(blocks=3)
    fill(cache, 1, 48)
    first = cache.keep(1, grid(32), [])
    longer = cache.keep(1, grid(48), first)
    assert longer[:2] == first
    assert cache.pool.used == 3


def test_the_least_recently_used_block_makes_room_and_referenced_ones_stay():
    cache = make_cache(blocks=3)
    fill(cache, 1, 32)
    old = cache.keep(1, grid(16), [])
    held = cache.keep(1, grid(16, start=1000), [])
    recent = cache.keep(1, grid(16, start=2000), [])
    cache.release(old)
    cache.release(recent)
    fresh = cache.keep(1, grid(16, start=3000), [])
    assert cache.pool.match(old) == 0
    assert [cache.pool.match(keys) for keys in (held, recent, fresh)] == [1, 1, 1]


def test_a_pool_full_of_referenced_blocks_keeps_what_fits():
    cache = make_cache(blocks=2)
    fill(cache, 1, 64)
    keys = cache.keep(1, grid(64), [])
    assert keys == block_keys(grid(32))
    assert cache.keep(1, grid(16, start=500), []) == []


def test_a_newer_pin_replaces_the_older_and_expires():
    cache = make_cache()
    fill(cache, 1, 32)
    cache.pin("session", cache.keep(1, grid(32), []), pin_s=1000)
    cache.pin("session", cache.keep(1, grid(16), []), pin_s=1000)
    assert cache.pool.referenced == 1
    cache.pin("session", cache.keep(1, grid(16), []), pin_s=-1)
    cache.expire_pins()
    assert cache.pool.referenced == 0
