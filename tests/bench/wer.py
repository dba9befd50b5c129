"""Word error rate of a running server's speech, by a Whisper model: an operator's check.

    python -m tests.bench.wer URL MODEL_DIR [VOICE]

Needs `faster-whisper` and `jiwer`, which nothing else here does: install them where this runs.
`MODEL_DIR` is a CTranslate2 Whisper model. Prints JSON.
"""

from __future__ import annotations

import json
import re
import sys

import httpx
import jiwer
import numpy as np
import soxr
from faster_whisper import WhisperModel

SENTENCES = (
    "Hello, and thank you for calling. What can I do for you today?",
    "Your table for four is booked for Friday evening.",
    "The train to Boston leaves from platform nine in twenty minutes.",
    "Would you please say your order number once more?",
    "Tomorrow will be cloudy, with a little rain in the afternoon.",
    "There are three hotels near the river that fit your budget.",
    "The package arrived at the front desk yesterday.",
    "One moment please, I will look that up for you.",
    "The museum is open from ten to six, except on Monday.",
    "You can choose a new password on the settings page.",
    "Do you prefer a seat at the window or in the aisle?",
    "That sounds like a wonderful idea.",
    "Please bring your passport and a printed ticket.",
    "For this cake you need two eggs, a cup of flour and some sugar.",
    "Turn left at the second light and park behind the library.",
    "The meeting was moved to Thursday because the room was taken.",
    "The doctor said that you should rest and drink plenty of water.",
    "The repair of the screen costs about thirty dollars.",
    "Our office is closed during the holidays.",
    "Good night, and thank you for your patience.",
)
NUMBERS = {"2": "two", "4": "four", "6": "six", "9": "nine", "10": "ten", "20": "twenty"}


def words(text: str) -> str:
    """Lower case, no punctuation, small numbers spelt out."""
    plain = re.sub(r"[^a-z0-9' ]", " ", text.lower().replace("-", " "))
    return " ".join(NUMBERS.get(word, word) for word in plain.split())


def speak(url: str, text: str, voice: str | None) -> tuple[np.ndarray, int]:
    """Sound f32 [samples] and its rate, from `POST /v1/audio/speech`."""
    body = {"input": text, "response_format": "pcm", "seed": 1}
    if voice:
        body["voice"] = voice
    answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=300).raise_for_status()
    sound = np.frombuffer(answer.content, "<i2").astype(np.float32) / 32767
    return sound, int(answer.headers["X-Audio-Sample-Rate"])


def main() -> None:
    """Speak every sentence, transcribe it, and compare."""
    url, model_dir, *rest = sys.argv[1:]
    recogniser = WhisperModel(model_dir, device="cpu", compute_type="int8", cpu_threads=2)
    references, heard, seconds = [], [], []
    for text in SENTENCES:
        sound, rate_hz = speak(url, text, rest[0] if rest else None)
        seconds.append(len(sound) / rate_hz)
        segments, _ = recogniser.transcribe(
            soxr.resample(sound, rate_hz, 16_000),
            language="en",
            beam_size=1,
            temperature=0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        references.append(words(text))
        heard.append(words(" ".join(segment.text for segment in segments)))
    print(
        json.dumps(
            {
                "benchmark": "wer",
                "recogniser": model_dir,
                "sentences": len(SENTENCES),
                "word_error_rate": round(jiwer.wer(references, heard), 4),
                "sound_s": round(sum(seconds), 1),
                "examples": list(zip(references, heard, strict=True))[:3],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
