"""Voices on disk: crashes, other codecs, damage."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from realtime.server.bridge import EngineError
from realtime.server.errors import ApiError
from realtime.server.voice import CodecKey, Voice
from realtime.server.voice_store import VoiceStore
from tests.realtime.server.recordings import packed, tone

pytestmark = pytest.mark.anyio

CODEC = CodecKey("c1", 4)
RATE_HZ = 24_000


async def encode(pcm: NDArray[np.float32]) -> NDArray[np.uint16]:
    frames = len(pcm) // 1920
    return np.arange(frames * 4, dtype=np.uint16).reshape(frames, 4)


async def never(pcm: NDArray[np.float32]) -> NDArray[np.uint16]:
    raise AssertionError("the codes were there")


async def add(store: VoiceStore, name: str, seconds: float = 2, **fields: str) -> Voice:
    pcm = tone(seconds)
    return await store.add(
        name=name,
        audio=packed(pcm),
        pcm=pcm[:, 0],
        rate_hz=RATE_HZ,
        encode=encode,
        **fields,
    )


def opened(root: Path, codec: CodecKey = CODEC, builtin: Path | None = None) -> VoiceStore:
    return VoiceStore(root / "voices", builtin, codec)


def directories(root: Path) -> list[str]:
    return [path.name for path in (root / "voices").iterdir() if path.is_dir()]


async def test_a_voice_comes_back_as_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.default() is None
    voice = await add(store, "Mia", ref_text="la", consent="yes")
    [again] = opened(tmp_path).all()
    np.testing.assert_array_equal(again.codes, voice.codes)
    for field in ("id", "name", "ref_text", "consent", "created_at", "duration_s", "builtin"):
        assert getattr(again, field) == getattr(voice, field)


async def test_a_failed_encode_or_a_full_disk_leaves_the_old_voice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    old = await add(store, "Mia")
    with pytest.raises(AssertionError, match="the codes were there"):
        await store.add(name="Mia", audio=b"new", pcm=tone(3)[:, 0], rate_hz=RATE_HZ, encode=never)

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            await add(store, "Mia", seconds=3)
    for reader in (store, opened(tmp_path)):
        [kept] = reader.all()
        assert kept.id == old.id
        np.testing.assert_array_equal(kept.codes, old.codes)
    assert directories(tmp_path) == [old.id]


async def test_a_crash_while_writing_or_replacing_is_tidied_up(tmp_path: Path) -> None:
    store = opened(tmp_path)
    old = await add(store, "Mia")
    shutil.copytree(tmp_path / "voices" / old.id, tmp_path / "old")
    new = await add(store, "mia", seconds=3)
    details = tmp_path / "old" / "voice.json"
    details.write_text(json.dumps(json.loads(details.read_text()) | {"created_at": 1}))
    shutil.move(tmp_path / "old", tmp_path / "voices" / old.id)
    (tmp_path / "voices" / ".writing-1").mkdir()
    other = opened(tmp_path)
    assert [voice.id for voice in other.all()] == [new.id]
    zoe = await add(other, "Zoe", seconds=4)
    assert sorted(directories(tmp_path)) == sorted([new.id, zoe.id])


async def test_what_one_server_changes_the_others_find_at_once(tmp_path: Path) -> None:
    here, there = opened(tmp_path), opened(tmp_path)
    assert there.all() == []
    for turn in range(20):  # within one tick of the file system's clock, most of them
        voice = await add(here, "Mia", seconds=2 + turn / 12.5)
        assert [found.id for found in there.all()] == [voice.id]
        here, there = there, here
    renamed = await here.update("mia", name="Zoe")
    assert (renamed.id, there.names()) == (voice.id, ["Zoe"])
    with pytest.raises(ApiError, match="there is no voice 'mia'"):
        await there.remove("mia")
    await there.remove("zoe")
    assert here.all() == []
    assert directories(tmp_path) == []


async def test_servers_that_take_one_name_at_once_keep_one_voice(tmp_path: Path) -> None:
    stores = [opened(tmp_path) for _ in range(4)]
    adding = (add(store, "Mia", seconds=2 + n) for n, store in enumerate(stores))
    made = await asyncio.gather(*adding)
    [kept] = opened(tmp_path).all()
    assert kept.id in {voice.id for voice in made}
    assert all([voice.id for voice in store.all()] == [kept.id] for store in stores)


async def test_a_corrected_transcript_makes_the_voice_an_upload_would_have_made(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    old = await add(store, "Mia", ref_text="lo", consent="yes")
    changed = await store.update(old.id, ref_text="la")
    assert store.get(old.id) is None
    [again] = opened(tmp_path).all()
    assert (again.id, again.name, again.ref_text, again.consent) == (
        *(changed.id, "Mia", "la", "yes"),
    )
    np.testing.assert_array_equal(again.codes, old.codes)
    assert (await add(store, "Mia", ref_text="la")).id == changed.id
    assert (await store.update("mia", ref_text="la", name="MIA")).id == changed.id
    assert store.names() == ["MIA"]


async def test_a_change_takes_no_other_voice_s_name_or_place(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await add(store, "Mia", ref_text="la")
    await add(store, "Zoe", seconds=3)
    await add(store, "Ann", ref_text="lo")
    for name, fields, code in (
        ("Mia", {"name": "zoe"}, "name_taken"),
        ("Mia", {"name": "default"}, "invalid_name"),
        ("Ann", {"ref_text": "la"}, "voice_exists"),
        ("Eve", {"name": "Lea"}, "voice_not_found"),
    ):
        with pytest.raises(ApiError) as caught:
            await store.update(name, **fields)
        assert caught.value.code == code
    assert store.names() == ["Mia", "Zoe", "Ann"]


async def test_another_codec_encodes_the_recording_again_once(tmp_path: Path) -> None:
    voice = await add(opened(tmp_path), "Mia")
    other = opened(tmp_path, CodecKey("c2", 4))
    assert other.all() == []
    lengths = []

    async def encode_other(pcm: NDArray[np.float32]) -> NDArray[np.uint16]:
        lengths.append(len(pcm))
        return np.full((5, 4), 7, np.uint16)

    await other.encode_missing(encode_other, 48_000)
    assert lengths == [2 * 48_000]
    for store in (other, opened(tmp_path, CodecKey("c2", 4))):
        await store.encode_missing(never, 48_000)
        [again] = store.all()
        assert again.id == voice.id
        assert (again.codes == 7).all()
    np.testing.assert_array_equal(opened(tmp_path).all()[0].codes, voice.codes)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"id": 1}'])
async def test_a_damaged_voice_is_skipped_and_the_others_load(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    bad, good = await add(store, "Mia"), await add(store, "Zoe", seconds=3)
    (tmp_path / "voices" / bad.id / "voice.json").write_bytes(content)
    assert [voice.id for voice in opened(tmp_path).all()] == [good.id]
    assert bad.id in caplog.text


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY rubbish", b"codes"])
async def test_damaged_codes_are_made_again(tmp_path: Path, content: bytes) -> None:
    voice = await add(opened(tmp_path), "Mia")
    (tmp_path / "voices" / voice.id / "codes-c1-4.npy").write_bytes(content)
    store = opened(tmp_path)
    await store.encode_missing(encode, RATE_HZ)
    np.testing.assert_array_equal(store.all()[0].codes, voice.codes)


async def test_a_damaged_recording_keeps_nobody_from_starting(tmp_path: Path) -> None:
    bad, good = await add(opened(tmp_path), "Mia"), await add(opened(tmp_path), "Zoe", seconds=3)
    (tmp_path / "voices" / bad.id / "audio.wav").write_bytes(b"?")
    store = opened(tmp_path, CodecKey("c2", 4))
    await store.encode_missing(encode, RATE_HZ)
    assert [voice.id for voice in store.all()] == [good.id]
    await store.encode_missing(never, RATE_HZ)


async def test_a_voice_that_the_engine_failed_on_is_tried_again(tmp_path: Path) -> None:
    uploaded = await add(opened(tmp_path), "Mia")
    builtin = tmp_path / "builtin"
    builtin.mkdir()
    (builtin / "zoe.wav").write_bytes(packed(tone(2)))
    store = opened(tmp_path, CodecKey("c2", 4), builtin=builtin)

    async def fail(pcm: NDArray[np.float32]) -> NDArray[np.uint16]:
        raise EngineError("the engine is starting")

    await store.encode_missing(fail, RATE_HZ)
    assert store.all() == []
    await store.encode_missing(encode, RATE_HZ)
    assert [voice.name for voice in store.all()] == ["zoe", uploaded.name]


async def test_builtin_recordings_without_fitting_codes_are_encoded(tmp_path: Path) -> None:
    builtin = tmp_path / "builtin"
    builtin.mkdir()
    for name in ("zoe", "mia"):
        (builtin / f"{name}.wav").write_bytes(packed(tone(2, hz=len(name) + ord(name[0]))))
    (builtin / "transcripts.json").write_text('{"zoe": "la"}')
    store = opened(tmp_path, builtin=builtin)
    assert store.default() is None
    await store.encode_missing(encode, RATE_HZ)
    assert store.names() == ["zoe", "mia"]
    default = store.default()
    assert default is not None
    assert (default.name, default.ref_text, default.builtin) == ("zoe", "la", True)
    with pytest.raises(ApiError, match="belongs to a voice that came with the model"):
        await add(store, "ZOE", seconds=3)
    assert not (tmp_path / "voices").exists()
