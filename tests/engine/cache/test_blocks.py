"""KV blocks: found by content, shared by reference, dropped least recently used first."""

import numpy as np
import torch

from engine.cache.blocks import BlockPool, block_keys
from engine.cache.kv import KVCache
from engine.cache.working_set import BLOCK, WorkingSet
from engine.models.qwen3 import StackConfig

CONFIG = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4, 1.0, 256)


def make_cache(blocks=4, host_blocks=0):
    device = torch.device("cpu")
    working = WorkingSet(CONFIG, 4, 256, torch.float32, device)
    return KVCache(working, BlockPool(CONFIG, blocks, torch.float32, device, host_blocks))


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


def content(cache, slot, blocks):
    return cache.working.blocks(slot, 0, blocks).clone()


def test_sessions_share_the_blocks_of_what_they_have_in_common():
    cache = make_cache(blocks=8)
    fill(cache, 1, 64)
    voice = cache.keep(1, grid(32), [])
    sessions = [cache.restore(slot, grid(48)) for slot in (2, 3)]
    assert sessions == [voice, voice]
    assert (cache.pool.used, cache.pool.referenced) == (2, 2)
    for keys in (voice, *sessions):
        assert cache.pool.referenced == 2
        cache.release(keys)
    assert cache.pool.referenced == 0


def test_who_goes_on_differently_changes_nothing_for_the_others():
    """Copy on write: what a row appends is its own, and a held block is never written again."""
    cache = make_cache(blocks=8)
    fill(cache, 1, 32)
    shared = cache.keep(1, grid(32), [])
    before = content(cache, 1, 2)
    cache.restore(2, grid(32))
    cache.working.store[:, :, 2] = 7.0
    theirs = np.concatenate([grid(32), grid(16, start=900)])
    kept = cache.keep(2, theirs, shared)
    cache.restore(3, theirs)
    assert (len(kept), cache.pool.used) == (3, 3)
    torch.testing.assert_close(content(cache, 3, 2), before, rtol=0, atol=0)
    assert (content(cache, 3, 3)[:, :, 2] == 7.0).all()


def test_of_a_context_the_last_block_goes_first():
    cache = make_cache(blocks=4)
    fill(cache, 1, 48)
    keys = cache.keep(1, grid(48), [])
    cache.release(keys)
    cache.keep(1, grid(32, start=500), [])
    assert cache.pool.match(keys) == 2


def test_when_memory_runs_short_the_oldest_pins_are_given_up():
    cache = make_cache(blocks=4)
    fill(cache, 1, 64)
    for session in range(4):
        pinned = cache.keep(1, grid(16, start=1000 * session), [])
        cache.pin(f"session {session}", pinned, pin_s=1000)
    renewed = cache.hold(grid(16))
    cache.pin("session 0", renewed, pin_s=1000)
    kept = cache.keep(1, grid(32, start=9000), [])
    assert len(kept) == 2
    held = [cache.pool.match(block_keys(grid(16, start=1000 * n))) for n in range(4)]
    assert held == [1, 0, 0, 1]


def test_blocks_that_make_room_come_back_from_host_memory_bit_by_bit():
    cache = make_cache(blocks=3, host_blocks=3)
    fill(cache, 1, 48)
    keys, before = cache.keep(1, grid(48), []), content(cache, 1, 3)
    cache.release(keys)
    fill(cache, 2, 48)
    cache.release(cache.keep(2, grid(48, start=700), []))
    assert (cache.pool.used, len(cache.pool.host)) == (3, 3)
    assert cache.restore(3, grid(48)) == keys
    torch.testing.assert_close(content(cache, 3, 3), before, rtol=0, atol=0)
    assert cache.pool.referenced == 3
    cache.release(keys)


def test_host_memory_forgets_the_block_that_left_longest_ago():
    cache = make_cache(blocks=1, host_blocks=2)
    fill(cache, 1, 16)
    starts = (0, 100, 200, 300)
    for start in starts:
        cache.release(cache.keep(1, grid(16, start=start), []))
    held = [cache.pool.match(block_keys(grid(16, start=start))) for start in starts]
    assert held == [0, 1, 1, 1]


def test_what_finds_no_room_to_come_back_is_left_where_it_is():
    cache = make_cache(blocks=3, host_blocks=8)
    fill(cache, 1, 48)
    keys = cache.keep(1, grid(48), [])
    cache.release(keys)
    others = cache.keep(1, grid(32, start=700), [])
    assert cache.restore(2, grid(48)) == keys[:1], "two rows' blocks take the rest"
    assert cache.pool.match(keys) == 3
    cache.release(others)
    assert cache.hold(grid(48)) == keys
    cache.release(keys)
    cache.release(keys[:1])
    assert cache.pool.referenced == 0
