"""The voices of a server: those that came with the model, and uploads that survive a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from engine.api import U16Codes
from realtime.server.audio.level import F32
from realtime.server.audio.reference import load_mono
from realtime.server.bridge import EngineError
from realtime.server.config import ServerConfig
from realtime.server.errors import ApiError
from realtime.server.voice import (
    CodecKey,
    Voice,
    VoiceDetails,
    check_name,
    retold,
    voice_id,
    with_codes,
)
from realtime.server.voice_files import Unencoded, VoiceDirectory, read_builtin_voices

logger = logging.getLogger(__name__)

MAX_VOICES = 1000

T = TypeVar("T")
Args = TypeVarTuple("Args")

Encode = Callable[[F32], Awaitable[U16Codes]]
"""Encodes f32 mono `[samples]` at the model's rate, loudness normalised."""


class VoiceStore:
    """Looks voices up by name (case does not matter) or id.

    Other server processes may use the same directory: what one has changed, all find at the next
    look. A look costs one system call, and reads files only after a change; so it may be made on
    the event loop.
    """

    def __init__(self, directory: Path, builtin_dir: Path | None, codec: CodecKey) -> None:
        """Read all voices. `directory` is made when the first voice is added."""
        self._files = VoiceDirectory(directory)
        self._codec = codec
        self._changing = asyncio.Lock()
        self._encoding = asyncio.Lock()
        self._unfit: set[str] = set()  # ids of voices that could not be encoded
        self._reading = threading.Lock()
        builtin = read_builtin_voices(builtin_dir, codec) if builtin_dir else []
        self._builtin_order = [_details_of(voice).id for voice in builtin]
        self._builtin = {voice.id: voice for voice in builtin if isinstance(voice, Voice)}
        self._builtin_waiting = [voice for voice in builtin if isinstance(voice, Unencoded)]
        self._stored: list[Voice | Unencoded] = []

    def all(self) -> list[Voice]:
        """Every voice: first those that came with the model, then uploads, oldest first."""
        uploads = [voice for voice in self._read() if isinstance(voice, Voice)]
        return [*self._builtin.values(), *uploads]

    def names(self) -> list[str]:
        """The names, in the order of `all`."""
        return [voice.name for voice in self.all()]

    def get(self, name_or_id: str) -> Voice | None:
        """Find a voice by name or id."""
        voices, wanted = self.all(), name_or_id.strip().casefold()
        for voice in voices:
            if voice.id == name_or_id:
                return voice
        return next((voice for voice in voices if voice.name.casefold() == wanted), None)

    def default(self) -> Voice | None:
        """The voice of a request that names none: the first that came with the model."""
        return next(iter(self._builtin.values()), None)

    def _read(self) -> list[Voice | Unencoded]:
        with self._reading:
            if self._files.has_changed():
                self._stored = self._files.read(self._codec)
            return self._stored

    async def encode_missing(self, encode: Encode, rate_hz: int) -> None:
        """Make the codes of voices that were stored under another codec.

        A voice whose recording cannot be read is left out until the next start; what the engine
        could not encode is tried again the next time.
        """
        async with self._encoding:  # who comes second finds them made
            stored = [voice for voice in self._read() if isinstance(voice, Unencoded)]
            waiting, self._builtin_waiting = [*self._builtin_waiting, *stored], []
            new = [voice for voice in waiting if voice.details.id not in self._unfit]
            await self._encode_all(new, encode, rate_hz)

    async def _encode_all(self, waiting: list[Unencoded], encode: Encode, rate_hz: int) -> None:
        for unencoded in waiting:
            try:
                pcm = await asyncio.to_thread(load_mono, unencoded.wav, rate_hz)
                voice = with_codes(unencoded.details, await encode(pcm))
                if voice.builtin:
                    self._add_builtin(voice)
                else:
                    await self._change(self._files.write_codes, voice.id, voice.codes, self._codec)
            except EngineError as error:
                if unencoded.details.builtin:
                    self._builtin_waiting.append(unencoded)
                logger.warning("voice waits id=%s error=%s", unencoded.details.id, error)
            except (OSError, RuntimeError) as error:
                self._unfit.add(unencoded.details.id)
                logger.warning("voice skipped id=%s error=%s", unencoded.details.id, error)
            else:
                logger.info("voice encoded id=%s", voice.id)

    def _add_builtin(self, voice: Voice) -> None:
        known = self._builtin | {voice.id: voice}
        self._builtin = {id_: known[id_] for id_ in self._builtin_order if id_ in known}

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
        audio_sha256 = hashlib.sha256(audio).hexdigest()
        details = VoiceDetails(
            id=voice_id(audio_sha256, ref_text),
            name=check_name(name),
            ref_text=ref_text,
            consent=consent,
            created_at=int(time.time()),
            duration_s=round(len(pcm) / rate_hz, 3),
            builtin=False,
            audio_sha256=audio_sha256,
        )
        self._check_place(details)
        voice = with_codes(details, await encode(pcm))
        return await self._change(self._store, voice, pcm, rate_hz)

    def _store(self, voice: Voice, pcm: F32, rate_hz: int) -> Voice:
        old = self._check_place(voice)
        if old and old.id == voice.id:
            return old
        details = retold(voice, name=None, ref_text=None)
        self._files.write(details, pcm, rate_hz, voice.codes, self._codec)
        if old:
            self._files.remove(old.id)
        logger.info("voice added id=%s replaces=%s", voice.id, old.id if old else None)
        return voice

    async def update(
        self, name_or_id: str, *, name: str | None = None, ref_text: str | None = None
    ) -> Voice:
        """Rename an uploaded voice, or correct its transcript, which gives it another id.

        Raises `ApiError`.
        """
        return await self._change(self._retell, name_or_id, name, ref_text)

    def _retell(self, name_or_id: str, name: str | None, ref_text: str | None) -> Voice:
        voice = self._changeable(name_or_id)
        details = retold(voice, name=name, ref_text=ref_text)
        namesake, twin = self.get(details.name), self.get(details.id)
        if namesake and namesake.id != voice.id:
            message = f"there is another voice called {namesake.name!r}"
            raise ApiError(409, "name_taken", message, param="name")
        if twin and twin.id != voice.id:
            message = f"this recording with this transcript is already the voice {twin.name!r}"
            raise ApiError(409, "voice_exists", message, param="ref_text")
        self._files.move(voice.id, details)
        logger.info("voice changed id=%s was=%s", details.id, voice.id)
        return with_codes(details, voice.codes)

    async def remove(self, name_or_id: str) -> Voice:
        """Delete an uploaded voice; rows that speak with it go on. Raises `ApiError`."""
        return await self._change(self._remove, name_or_id)

    def _remove(self, name_or_id: str) -> Voice:
        voice = self._changeable(name_or_id)
        self._files.remove(voice.id)
        logger.info("voice removed id=%s", voice.id)
        return voice

    async def _change(self, work: Callable[[*Args], T], *args: *Args) -> T:
        """Run `work` on a thread while no other process changes anything."""

        def locked() -> T:
            with self._files.changing():
                self._read()
                self._files.remove_hidden()
                return work(*args)

        async with self._changing:
            return await asyncio.to_thread(locked)

    def _changeable(self, name_or_id: str) -> Voice:
        voice = self.get(name_or_id)
        if voice is None:
            raise voice_not_found(name_or_id, self.names(), 404)
        if voice.builtin:
            message = f"voice {voice.name!r} came with the model and cannot be changed or deleted"
            raise ApiError(403, "builtin_voice", message)
        return voice

    def _check_place(self, new: VoiceDetails) -> Voice | None:
        """Return the voice that `new` replaces. Raises `ApiError` where it must not."""
        same_sound, old = self.get(new.id), self.get(new.name)
        if old and old.builtin:
            message = f"the name {old.name!r} belongs to a voice that came with the model"
            raise ApiError(409, "name_taken", message, param="name")
        if same_sound and not (old and same_sound.id == old.id):
            message = f"this recording is already the voice {same_sound.name!r}"
            raise ApiError(409, "voice_exists", message, param="audio")
        if not old and len(self.all()) >= MAX_VOICES:
            message = f"the server holds {MAX_VOICES} voices, its limit; delete one first"
            raise ApiError(409, "too_many_voices", message)
        return old


def _details_of(voice: Voice | Unencoded) -> VoiceDetails:
    return voice.details if isinstance(voice, Unencoded) else voice


def voice_not_found(name: str, names: list[str], status: int) -> ApiError:
    """The error of an unknown voice, with those that exist."""
    known = ", ".join(names[:50]) or "none"
    message = f"there is no voice {name!r}; there are: {known}"
    return ApiError(status, "voice_not_found", message, param="voice")


def open_voice_store(config: ServerConfig, codec: CodecKey) -> VoiceStore:
    """Read the voices of a server as the models see them that use this codec."""
    builtin_dir = Path(config.voices).expanduser() if config.voices else None
    return VoiceStore(Path(config.data_dir).expanduser() / "voices", builtin_dir, codec)


def codec_key(codec_dir: Path | None, n_vq: int) -> CodecKey:
    """Which codes fit a model of `n_vq` codebooks; None stands for the fake engine's codec."""
    return CodecKey(_fingerprint(codec_dir) if codec_dir else "fake", n_vq)


def _fingerprint(codec_dir: Path) -> str:
    """Tell codecs apart by their configuration and the sizes of their weights."""
    digest = hashlib.sha256((codec_dir / "config.json").read_bytes())
    for shard in sorted(codec_dir.glob("*.safetensors")):
        digest.update(f"{shard.name}:{shard.stat().st_size};".encode())
    return digest.hexdigest()[:16]
