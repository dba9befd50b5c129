"""The voices of a server: those that came with the model, and uploads that survive a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from engine import hub
from engine.api import U16Codes
from realtime.server.audio.level import F32
from realtime.server.audio.reference import load_mono
from realtime.server.bridge import EngineBridge
from realtime.server.config import ServerConfig
from realtime.server.errors import ApiError
from realtime.server.voice import CodecKey, Voice, VoiceDetails, check_name, voice_id, with_codes
from realtime.server.voice_files import Unencoded, VoiceDirectory, read_builtin_voices

logger = logging.getLogger(__name__)

MAX_VOICES = 1000

Encode = Callable[[F32], Awaitable[U16Codes]]
"""Encodes f32 mono `[samples]` at the model's rate, loudness normalised."""


class VoiceStore:
    """Looks voices up by name (case does not matter) or id.

    Reading needs no disk. A change is on disk before it is visible here.
    """

    def __init__(self, directory: Path, builtin_dir: Path | None, codec: CodecKey) -> None:
        """Read all voices. `directory` is made when the first voice is added."""
        self._files = VoiceDirectory(directory)
        self._codec = codec
        self._changing = asyncio.Lock()
        builtin = read_builtin_voices(builtin_dir, codec) if builtin_dir else []
        found = [*builtin, *self._files.read(codec)]
        self._by_id = {voice.id: voice for voice in found if isinstance(voice, Voice)}
        self._unencoded = [voice for voice in found if isinstance(voice, Unencoded)]

    def all(self) -> list[Voice]:
        """Every voice: first those that came with the model, then uploads, oldest first."""
        return list(self._by_id.values())

    def names(self) -> list[str]:
        """The names, in the order of `all`."""
        return [voice.name for voice in self._by_id.values()]

    def get(self, name_or_id: str) -> Voice | None:
        """Find a voice by name or id."""
        if voice := self._by_id.get(name_or_id):
            return voice
        wanted = name_or_id.strip().casefold()
        return next((v for v in self._by_id.values() if v.name.casefold() == wanted), None)

    def default(self) -> Voice | None:
        """The voice of a request that names none: the first that came with the model."""
        return next((voice for voice in self._by_id.values() if voice.builtin), None)

    async def encode_missing(self, encode: Encode, rate_hz: int) -> None:
        """Make the codes of voices that were stored under another codec.

        A voice that cannot be encoded is left out, and tried again at the next start.
        """
        async with self._changing:
            waiting, self._unencoded = self._unencoded, []
            for unencoded in waiting:
                try:
                    voice = await self._encode_stored(unencoded, encode, rate_hz)
                except (OSError, RuntimeError) as error:
                    logger.warning("voice skipped id=%s error=%s", unencoded.details.id, error)
                else:
                    self._by_id[voice.id] = voice
                    logger.info("voice encoded id=%s", voice.id)

    async def _encode_stored(self, unencoded: Unencoded, encode: Encode, rate_hz: int) -> Voice:
        pcm = await asyncio.to_thread(load_mono, unencoded.wav, rate_hz)
        voice = with_codes(unencoded.details, await encode(pcm))
        if not voice.builtin:
            await asyncio.to_thread(self._files.write_codes, voice.id, voice.codes, self._codec)
        return voice

    async def add(
        self,
        *,
        name: str,
        audio: bytes,
        pcm: F32,
        rate_hz: int,
        encode: Encode,
        ref_text: str = "",
        consent: str = "",
    ) -> Voice:
        """Store a recording (`audio` as it came, `pcm` decoded at `rate_hz`); return its voice.

        An upload under the name of an earlier one replaces it, once the new one is safely stored.
        Raises `ApiError` for a name or recording that cannot be taken.
        """
        details = VoiceDetails(
            id=voice_id(audio, ref_text),
            name=check_name(name),
            ref_text=ref_text,
            consent=consent,
            created_at=int(time.time()),
            duration_s=round(len(pcm) / rate_hz, 3),
            builtin=False,
        )
        self._check_place(details)
        voice = with_codes(details, await encode(pcm))
        async with self._changing:
            old = self._check_place(details)
            if old and old.id == voice.id:
                return old
            await asyncio.to_thread(
                self._files.write, details, pcm, rate_hz, voice.codes, self._codec
            )
            self._by_id[voice.id] = voice
            if old:
                del self._by_id[old.id]
                await asyncio.to_thread(self._files.remove, old.id)
        logger.info("voice added id=%s replaces=%s", voice.id, old.id if old else None)
        return voice

    async def remove(self, name_or_id: str) -> Voice:
        """Delete an uploaded voice; rows that speak with it go on. Raises `ApiError`."""
        async with self._changing:
            voice = self.get(name_or_id)
            if voice is None:
                raise voice_not_found(name_or_id, self.names(), 404)
            if voice.builtin:
                message = f"voice {voice.name!r} came with the model and cannot be deleted"
                raise ApiError(403, "builtin_voice", message)
            del self._by_id[voice.id]
            await asyncio.to_thread(self._files.remove, voice.id)
        logger.info("voice removed id=%s", voice.id)
        return voice

    def _check_place(self, new: VoiceDetails) -> Voice | None:
        """Return the voice that `new` replaces. Raises `ApiError` where it must not."""
        same_sound, old = self._by_id.get(new.id), self.get(new.name)
        if old and old.builtin:
            message = f"the name {old.name!r} belongs to a voice that came with the model"
            raise ApiError(409, "name_taken", message, param="name")
        if same_sound and same_sound is not old:
            message = f"this recording is already the voice {same_sound.name!r}"
            raise ApiError(409, "voice_exists", message, param="audio")
        if not old and len(self._by_id) >= MAX_VOICES:
            message = f"the server holds {MAX_VOICES} voices, its limit; delete one first"
            raise ApiError(409, "too_many_voices", message)
        return old


def voice_not_found(name: str, names: list[str], status: int) -> ApiError:
    """The error of an unknown voice, with those that exist."""
    known = ", ".join(names[:50]) or "none"
    message = f"there is no voice {name!r}; there are: {known}"
    return ApiError(status, "voice_not_found", message, param="voice")


def open_voice_store(config: ServerConfig, n_vq: int) -> VoiceStore:
    """Read the voices of a server whose model has `n_vq` codebooks."""
    codec = CodecKey("fake" if config.fake else _fingerprint(hub.resolve(config.codec)), n_vq)
    builtin_dir = Path(config.voices).expanduser() if config.voices else None
    return VoiceStore(Path(config.data_dir).expanduser() / "voices", builtin_dir, codec)


async def encode_missing_voices(store: VoiceStore, bridge: EngineBridge) -> None:
    """Once the engine is up, encode what was stored under another codec."""
    await bridge.ready()
    await store.encode_missing(
        lambda pcm: bridge.encode(pcm, "normalise"), bridge.models[0].rate_hz
    )


def _fingerprint(codec_dir: Path) -> str:
    """Tell codecs apart by their configuration and the sizes of their weights."""
    digest = hashlib.sha256((codec_dir / "config.json").read_bytes())
    for shard in sorted(codec_dir.glob("*.safetensors")):
        digest.update(f"{shard.name}:{shard.stat().st_size};".encode())
    return digest.hexdigest()[:16]
