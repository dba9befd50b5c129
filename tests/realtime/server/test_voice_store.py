"""Voices on disk: crashes, other codecs, damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

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
    assert store.get("mia") is old
    assert [voice.id for voice in opened(tmp_path).all()] == [old.id]
    assert [path.name for path in (tmp_path / "voices").iterdir()] == [old.id]


async def test_a_crash_while_writing_or_replacing_is_tidied_up(tmp_path: Path) -> None:
    store = opened(tmp_path)
    old = await add(store, "Mia")
    shutil.copytree(tmp_path / "voices" / old.id, tmp_path / "old")
    new = await add(store, "mia", seconds=3)
    details = tmp_path / "old" / "voice.json"
    details.write_text(json.dumps(json.loads(details.read_text()) | {"created_at": 1}))
    shutil.move(tmp_path / "old", tmp_path / "voices" / old.id)
    (tmp_path / "voices" / ".writing-1").mkdir()
    assert [voice.id for voice in opened(tmp_path).all()] == [new.id]
    assert [path.name for path in (tmp_path / "voices").iterdir()] == [new.id]


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
