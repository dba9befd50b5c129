"""The torch-free half of a checkpoint of any family: what it can do, and its prompts."""

from __future__ import annotations

from pathlib import Path

from engine.models.delay_prompt import DelayPrompt
from engine.models.delay_speech import DelaySpeech
from engine.models.local_prompt import LocalPrompt
from engine.models.local_speech import LocalSpeech
from engine.models.nano_prompt import NanoPrompt
from engine.models.nano_speech import NanoSpeech
from engine.models.realtime_prompt import RealtimePrompt
from engine.models.realtime_speech import RealtimeSpeech
from engine.models.utterances import SpeechModel
from engine.models.variants import variant_of


def load_speech_model(model_dir: Path, variant: str = "auto") -> SpeechModel:
    """Read config and tokenizer; `variant` as for `variant_of`. Raises `CheckpointError`."""
    name = variant_of(model_dir, variant).name
    match name:
        case "realtime":
            return RealtimeSpeech(RealtimePrompt.from_checkpoint(model_dir))
        case "local":
            return LocalSpeech(LocalPrompt.from_checkpoint(model_dir))
        case "nano":
            return NanoSpeech(NanoPrompt.from_checkpoint(model_dir))
        case _:
            prompt = DelayPrompt.from_checkpoint(model_dir, "ttsd" if name == "ttsd" else "family")
            return DelaySpeech(prompt, name)
