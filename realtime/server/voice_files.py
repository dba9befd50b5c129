"""Voices on disk. A directory is complete or not there: written aside, then renamed.

`<id>/voice.json` describes a voice, `<id>/audio.wav` is its recording (f32 mono) and
`<id>/codes-<codec>-<n_vq>.npy` its codes, u16 `[frames, n_vq]`, one file for each codec.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import secrets
import shutil
from pathlib import Path

import numpy as np
import soundfile
from safetensors.numpy import load_file

from engine.api import U16Codes
from realtime.server.audio.level import F32
from realtime.server.voice import CodecKey, Voice, VoiceDetails, voice_id, with_codes

logger = logging.getLogger(__name__)

_ASIDE = ".writing-"


@dataclasses.dataclass(frozen=True, slots=True)
class Unencoded:
    """A voice without codes of the codec in use; its recording is at `wav`."""

    details: VoiceDetails
    wav: Path


class VoiceDirectory:
    """The uploaded voices of one server. Every method touches the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, codec: CodecKey) -> list[Voice | Unencoded]:
        """Read all voices, oldest first; tidy up what a crash left half done."""
        if not self._root.is_dir():
            return []
        found = []
        for path in self._root.iterdir():
            if path.name.startswith(_ASIDE):
                shutil.rmtree(path)
            elif path.is_dir() and (voice := _read_voice(path, codec)):
                found.append(voice)
        return self._newest_of_each_name(found)

    def write(
        self, details: VoiceDetails, pcm: F32, rate_hz: int, codes: U16Codes, codec: CodecKey
    ) -> None:
        """Store a voice; once this returns it survives a crash of the machine."""
        self._root.mkdir(parents=True, exist_ok=True)
        aside = self._root / f"{_ASIDE}{secrets.token_hex(8)}"
        aside.mkdir()
        try:
            wav = io.BytesIO()
            soundfile.write(wav, pcm, rate_hz, format="WAV", subtype="FLOAT")
            _write_durably(aside / "audio.wav", wav.getvalue())
            _write_durably(aside / "voice.json", json.dumps(dataclasses.asdict(details)).encode())
            _write_durably(aside / _codes_name(codec), _npy(codes))
            _sync(aside)
            aside.rename(self._root / details.id)
            _sync(self._root)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise

    def write_codes(self, identity: str, codes: U16Codes, codec: CodecKey) -> None:
        """Add the codes of another codec to a voice."""
        path = self._root / identity / _codes_name(codec)
        aside = path.with_suffix(".writing")
        _write_durably(aside, _npy(codes))
        aside.rename(path)

    def remove(self, identity: str) -> None:
        """Delete a voice."""
        aside = self._root / f"{_ASIDE}{secrets.token_hex(8)}"
        (self._root / identity).rename(aside)
        _sync(self._root)
        shutil.rmtree(aside)

    def _newest_of_each_name(self, found: list[Voice | Unencoded]) -> list[Voice | Unencoded]:
        """A crash between storing a new voice and deleting the one it replaces leaves both."""
        newest: dict[str, Voice | Unencoded] = {}
        for voice in sorted(found, key=lambda v: (_details(v).created_at, _details(v).id)):
            replaced = newest.pop(_details(voice).name.casefold(), None)
            if replaced:
                self.remove(_details(replaced).id)
            newest[_details(voice).name.casefold()] = voice
        return list(newest.values())


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
    return VoiceDetails(
        id=voice_id(wav.read_bytes(), ref_text),
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
