"""Voices on disk, shared by server processes. What is there is complete: written aside, renamed.

`<id>/voice.json` describes a voice, `<id>/audio.wav` is its recording (f32 mono) and
`<id>/codes-<codec>-<n_vq>.npy` its codes, u16 `[frames, n_vq]`, one file for each codec. Every
change ends with a rename into or out of the directory, whose modification time so tells of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from safetensors.numpy import load_file

from engine.api import U16Codes
from realtime.server.audio.level import F32
from realtime.server.voice import CodecKey, Voice, VoiceDetails, voice_id, with_codes

logger = logging.getLogger(__name__)

_ASIDE = ".writing-"
_LOCK = ".lock"
_Stamp = tuple[int, int]
_CLOCK_TICK_NS = 100_000_000  # generous: file systems stamp with a clock of some milliseconds


@dataclasses.dataclass(frozen=True, slots=True)
class Unencoded:
    """A voice without codes of the codec in use; its recording is at `wav`."""

    details: VoiceDetails
    wav: Path


class VoiceDirectory:
    """The uploaded voices of all servers that use `root`. Every method touches the disk.

    Changes are made while holding `changing`; reading needs no lock.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen_ns: int | None = None  # the directory's time at the last read, once settled
        self._parsed: dict[Path, tuple[_Stamp, Voice | Unencoded]] = {}
        self._hidden: list[str] = []

    def has_changed(self) -> bool:
        """Whether `read` may find something else than the last time. Costs one system call."""
        return self._seen_ns is None or _modified_ns(self._root) != self._seen_ns

    def read(self, codec: CodecKey) -> list[Voice | Unencoded]:
        """Read all voices, oldest first; of several with one name the newest.

        A crash between storing a voice and deleting the one it replaces leaves both.
        """
        modified_ns = _modified_ns(self._root)
        # Two changes within a tick of the file system's clock have the same time.
        settled = time.time_ns() - modified_ns > _CLOCK_TICK_NS
        self._seen_ns = modified_ns if settled else None
        newest: dict[str, Voice | Unencoded] = {}
        self._hidden = []
        for voice in self._complete(codec):
            name = _details(voice).name.casefold()
            if older := newest.pop(name, None):
                self._hidden.append(_details(older).id)
            newest[name] = voice
        return list(newest.values())

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock that only one process has at a time; it is let go if the process dies.

        Tidies up first what a crash left half written.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for path in self._root.glob(f"{_ASIDE}*"):
                shutil.rmtree(path)
            yield

    def remove_hidden(self) -> None:
        """Delete the voices that the last `read` left out."""
        for identity in self._hidden:
            self.remove(identity)
        self._hidden = []

    def write(
        self, details: VoiceDetails, pcm: F32, rate_hz: int, codes: U16Codes, codec: CodecKey
    ) -> None:
        """Store a voice; once this returns it survives a crash of the machine."""
        with self._aside() as aside:
            wav = io.BytesIO()
            soundfile.write(wav, pcm, rate_hz, format="WAV", subtype="FLOAT")
            _write_durably(aside / "audio.wav", wav.getvalue())
            _write_durably(aside / _codes_name(codec), _npy(codes))
            self._put_in_place(aside, details)

    def move(self, identity: str, details: VoiceDetails) -> None:
        """Give a stored voice other details, an id of its own among them."""
        if details.id == identity:
            with self._aside() as aside:
                _write_durably(aside / "voice.json", _json(details))
                (aside / "voice.json").rename(self._root / identity / "voice.json")
                _sync(self._root / identity)
            return
        with self._aside() as aside:
            for path in (self._root / identity).iterdir():
                if path.name != "voice.json":
                    os.link(path, aside / path.name)
            self._put_in_place(aside, details)
        self.remove(identity)

    def write_codes(self, identity: str, codes: U16Codes, codec: CodecKey) -> None:
        """Add the codes of another codec to a voice."""
        with self._aside() as aside:
            name = _codes_name(codec)
            _write_durably(aside / name, _npy(codes))
            (aside / name).rename(self._root / identity / name)

    def remove(self, identity: str) -> None:
        """Delete a voice."""
        with self._aside() as aside:
            (self._root / identity).rename(aside / identity)
            _sync(self._root)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Path]:
        """A directory to work in that `read` does not see."""
        aside = self._root / f"{_ASIDE}{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _put_in_place(self, aside: Path, details: VoiceDetails) -> None:
        _write_durably(aside / "voice.json", _json(details))
        _sync(aside)
        aside.rename(self._root / details.id)
        _sync(self._root)

    def _complete(self, codec: CodecKey) -> list[Voice | Unencoded]:
        """Every voice, oldest first. Read anew only if it changed."""
        parsed: dict[Path, tuple[_Stamp, Voice | Unencoded]] = {}
        for path in self._root.iterdir() if self._root.is_dir() else ():
            if path.name.startswith(_ASIDE) or not path.is_dir():
                continue
            stamp = _stamp(path)
            known = self._parsed.get(path)
            if known and known[0] == stamp and isinstance(known[1], Voice):
                parsed[path] = known
            elif voice := _read_voice(path, codec):
                parsed[path] = (stamp, voice)
        self._parsed = parsed
        by_age = sorted(parsed.values(), key=lambda one: (_details(one[1]).created_at, one[0]))
        return [voice for _, voice in by_age]


def read_builtin_voices(directory: Path, codec: CodecKey) -> list[Voice | Unencoded]:
    """Read the voices that come with a model: `NAME.wav`, and two files that may be absent.

    `transcripts.json` maps names to what is said and gives the order; `references.safetensors` has
    codes `[frames, n_vq]` by name, made by the codec of that model. Codes with another number of
    codebooks are ignored, and made anew.
    """
    transcripts, codes = directory / "transcripts.json", directory / "references.safetensors"
    texts: dict[str, str] = json.loads(transcripts.read_bytes()) if transcripts.exists() else {}
    references = load_file(codes) if codes.exists() else {}
    wavs = {path.stem: path for path in sorted(directory.glob("*.wav"))}
    names = [name for name in texts if name in wavs] + [name for name in wavs if name not in texts]
    found: list[Voice | Unencoded] = []
    for name in names:
        details = _builtin_details(wavs[name], texts.get(name, ""))
        reference = references.get(name)
        if reference is not None and reference.ndim == 2 and reference.shape[1] == codec.n_vq:
            found.append(with_codes(details, reference.astype(np.uint16)))
        else:
            found.append(Unencoded(details, wavs[name]))
    return found


def _builtin_details(wav: Path, ref_text: str) -> VoiceDetails:
    audio_sha256 = hashlib.sha256(wav.read_bytes()).hexdigest()
    return VoiceDetails(
        id=voice_id(audio_sha256, ref_text),
        audio_sha256=audio_sha256,
        name=wav.stem,
        ref_text=ref_text,
        consent="",
        created_at=int(wav.stat().st_mtime),
        duration_s=round(soundfile.info(wav).duration, 3),
        builtin=True,
    )


def _read_voice(path: Path, codec: CodecKey) -> Voice | Unencoded | None:
    try:
        details = VoiceDetails(**json.loads((path / "voice.json").read_bytes()))
        if details.id != path.name:
            raise ValueError(f"its id is {details.id!r}")
    except (OSError, ValueError, TypeError) as error:
        if not path.exists():  # another server has just deleted it
            return None
        logger.warning("voice skipped path=%s error=%s", path, error)
        return None
    codes = _read_codes(path / _codes_name(codec), codec)
    return Unencoded(details, path / "audio.wav") if codes is None else with_codes(details, codes)


def _read_codes(path: Path, codec: CodecKey) -> U16Codes | None:
    if not path.exists():
        return None
    try:
        codes = np.load(path, allow_pickle=False)
        if codes.dtype != np.uint16 or codes.ndim != 2 or codes.shape[1] != codec.n_vq:
            raise ValueError(f"codes are {codes.dtype} {list(codes.shape)}")
    except (OSError, ValueError, EOFError) as error:
        logger.warning("codes ignored path=%s error=%s", path, error)
        return None
    return np.asarray(codes)


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _stamp(path: Path) -> _Stamp:
    """Differs for every writing of a voice's details, which always makes a new file."""
    try:
        found = (path / "voice.json").stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def _json(details: VoiceDetails) -> bytes:
    return json.dumps(dataclasses.asdict(details)).encode()


def _details(voice: Voice | Unencoded) -> VoiceDetails:
    return voice.details if isinstance(voice, Unencoded) else voice


def _codes_name(codec: CodecKey) -> str:
    return f"codes-{codec.codec}-{codec.n_vq}.npy"


def _npy(codes: U16Codes) -> bytes:
    file = io.BytesIO()
    np.save(file, codes, allow_pickle=False)
    return file.getvalue()


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
