"""The codes of a user's recordings, made once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import pad

from engine.api import U16Codes
from engine.codec.codec import AudioCodec, load_codec
from engine.train.files import written_whole
from engine.train.finetune.manifest import Clip
from engine.train.finetune.sound import F32, Use, recording_for
from engine.train.journal import Journal


class CodeBook:
    """Codes by recording and use; made where the folder does not have them yet.

    They are named after what they are made of, so that a changed recording or codec makes new ones.
    """

    def __init__(self, directory: Path, codec_dir: Path, n_vq: int, device: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._codec_dir = directory, codec_dir
        self._n_vq, self._device = n_vq, device
        self._codec: AudioCodec | None = None
        self._origin = _fingerprint(codec_dir)

    def encode_all(self, clips: Iterable[Clip], journal: Journal) -> None:
        """Make every code that the clips need; a killed run goes on where it was."""
        wanted: set[tuple[Path, Use]] = set()
        for clip in clips:
            wanted |= {(clip.audio, "reply"), (clip.audio, "reference")}
            wanted |= {
                (turn.audio, "reply" if turn.role == "assistant" else "user")
                for turn in clip.turns
                if turn.audio
            }
            if clip.reference:
                wanted.add((clip.reference, "reference"))
        for done, (path, use) in enumerate(sorted(wanted), start=1):
            self.codes(path, use)
            journal.progress(done / len(wanted), recordings=done)

    def codes(self, path: Path, use: Use) -> U16Codes:
        """Codes u16 [frames, n_vq] of all of a recording. Raises `SoundError`."""
        digest = hashlib.sha256(path.read_bytes() + f"{use} {self._origin}".encode()).hexdigest()
        kept = self._directory / f"{digest[:32]}.npy"
        if not kept.is_file():
            with written_whole(kept) as partial, partial.open("wb") as file:
                np.save(
                    file, self._encode(recording_for(path, use, self.codec.config.sample_rate).pcm)
                )
        codes: U16Codes = np.load(kept)
        return codes

    @property
    def codec(self) -> AudioCodec:
        """The codec, loaded when it is first needed."""
        if self._codec is None:
            self._codec = load_codec(self._codec_dir, device=self._device)
        return self._codec

    def _encode(self, pcm: F32) -> U16Codes:
        config = self.codec.config
        wav = torch.from_numpy(pcm).expand(1, config.channels, -1)
        wav = pad(wav, (0, -len(pcm) % config.samples_per_frame))
        codes, _ = self.codec.encode(wav, n_codebooks=self._n_vq)
        return codes[:, 0].T.cpu().numpy().astype(np.uint16)


def _fingerprint(codec_dir: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([codec_dir / "config.json", *codec_dir.glob("*.safetensors")]):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
