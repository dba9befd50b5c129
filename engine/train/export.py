"""A trained voice as one folder that serves: model, codec, voices, and a golden file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from engine.checkpoint import read_json
from engine.codec.codec import AudioCodec, load_codec
from engine.models.realtime import RealtimeModel
from engine.models.realtime_prompt import RealtimePrompt
from engine.train.checkpoint import trainable
from engine.train.corpus.shards import FULL_SCALE
from engine.train.corpus.speakers import SHIPPED
from engine.train.corpus.teacher import SAMPLE_RATE, Teacher
from engine.train.files import written_whole
from engine.train.language.codes import encode
from engine.train.objective import hidden_states

SAMPLING = {"do_sample": True, "temperature": 0.6, "repetition_penalty": 1.0}
REFERENCE_TEXTS = {
    "heart": "It's a bright morning, and the whole street is already awake.",
    "alto": "We walked along the harbor and talked about the summer.",
    "bright": "Tell me what you need, and I will find a way to help.",
    "male": "The last train has left, but there is a bus at midnight.",
}
GOLDEN = (
    ("heart", "Good morning, how can I help?"),
    ("male", "The library opens at nine."),
    (None, "Yes."),
)
PENALTY, PENALTY_WINDOW = 1.1, 50
LONGEST_GOLDEN_FRAMES = 100


def export_voice(model_dir: Path, codec_dir: Path, directory: Path) -> None:
    """Write `model`, `codec`, `voices` and `golden.*` into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for source, name in ((model_dir, "model"), (codec_dir, "codec")):
        shutil.copytree(source, directory / name, dirs_exist_ok=True)
    _write_json(directory / "model" / "generation_config.json", SAMPLING)
    codebooks = read_json(directory / "model", "config.json")["rvq"]
    references = _write_voices(load_codec(directory / "codec"), codebooks, directory / "voices")
    _write_golden(directory, references)


def _write_voices(
    codec: AudioCodec, codebooks: int, directory: Path
) -> dict[str, NDArray[np.uint16]]:
    """One reference of each shipped speaker: WAV, transcript, codes u16 [frames, codebooks]."""
    directory.mkdir(exist_ok=True)
    teacher = Teacher()
    references = {}
    for seed, speaker in enumerate(SHIPPED):
        sound = teacher.speak(REFERENCE_TEXTS[speaker.name], speaker, seed).sound
        samples = (sound * FULL_SCALE).astype(np.int16)
        per_frame = codec.config.samples_per_frame
        samples = np.pad(samples, (0, -len(samples) % per_frame))
        soundfile.write(directory / f"{speaker.name}.wav", samples, SAMPLE_RATE, "PCM_16")
        references[speaker.name] = encode(codec, [samples])[0][:, :codebooks]
    _write_json(directory / "transcripts.json", REFERENCE_TEXTS)
    tensors = {name: torch.from_numpy(codes.astype(np.int64)) for name, codes in references.items()}
    with written_whole(directory / "references.safetensors") as partial:
        save_file({name: codes.contiguous() for name, codes in tensors.items()}, partial)
    return references


def _write_golden(directory: Path, references: dict[str, NDArray[np.uint16]]) -> None:
    """Greedy speech by whole-sequence passes: no cache, no streaming, nothing of the engine."""
    model = trainable(directory / "model").eval()
    prompt = RealtimePrompt.from_checkpoint(directory / "model")
    codec = load_codec(directory / "codec")
    tensors: dict[str, Tensor] = {}
    sentences: dict[str, Any] = {}
    for number, (voice, text) in enumerate(GOLDEN):
        text_ids = prompt.tokenizer.encode(text)
        context = np.concatenate(
            [prompt.system(references[voice] if voice else None), prompt.assistant_header(True)]
        )
        frames, margin = _speak_greedily(model, prompt, context, text_ids)
        ended = bool(frames[-1, 0] == prompt.audio_eos)
        spoken = frames[:-1] if ended else frames
        tensors[f"{number}.prompt_grid"] = torch.from_numpy(context.astype(np.int64))
        tensors[f"{number}.text_ids"] = torch.tensor(text_ids)
        tensors[f"{number}.frames"] = frames
        tensors[f"{number}.pcm"] = codec.decode(spoken.T[:, None])[0]
        sentences[str(number)] = {"text": text, "voice": voice, "ended": ended, "margin": margin}
    with written_whole(directory / "golden.safetensors") as partial:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
    _write_json(directory / "golden.json", sentences)


@torch.inference_mode()
def _speak_greedily(
    model: RealtimeModel, prompt: RealtimePrompt, context: NDArray[np.int32], text_ids: list[int]
) -> tuple[Tensor, float]:
    """Frames i64 [F, n_vq] and the smallest gap between the best two scores of any code."""
    frames: list[Tensor] = []
    margins: list[float] = []
    said = torch.empty(0, prompt.n_vq, dtype=torch.int64)

    def choose(codebook: int, logits: Tensor) -> Tensor:
        scores = logits.clone()
        if codebook == 0 and not frames:
            scores[:, prompt.audio_eos] = -torch.inf
        heard = said[-PENALTY_WINDOW:, codebook].unique()
        old = scores[:, heard]
        scores[:, heard] = torch.where(old < 0, old * PENALTY, old / PENALTY)
        best = scores.topk(2).values[0]
        margins.append(float(best[0] - best[1]))
        return scores.argmax(-1)

    while len(frames) < LONGEST_GOLDEN_FRAMES:
        rows = prompt.assistant_turn(text_ids, said.numpy())
        start = min(len(text_ids), prompt.prefill_text_len)
        grid = np.concatenate([context, rows[: start + len(said)]])
        embedded = model.embed(torch.from_numpy(grid).long())
        hidden = hidden_states(model, embedded, [len(grid)])[-1:]
        frame = model.depth(hidden, choose)
        frames.append(frame)
        said = torch.cat(frames)
        if frame[0, 0] == prompt.audio_eos:
            break
    return said, min(margins)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
