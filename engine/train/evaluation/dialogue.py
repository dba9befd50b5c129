"""Three replies in one context, a user's speech before each but the first."""

from __future__ import annotations

from collections.abc import Sequence

from engine.codec.codec import AudioCodec
from engine.models.realtime_prompt import Turn
from engine.text.plain import PlainTokenizer
from engine.train.evaluation.in_process import EngineVoice
from engine.train.evaluation.resynthesis import encode
from engine.train.evaluation.speech import TEACHER_VOICES, Line, Said, teacher_speech
from engine.train.evaluation.texts import read_texts

TURNS = 3


def cast_dialogues(texts: Sequence[str], voices: Sequence[str]) -> list[list[Line]]:
    """Take the texts three at a time, each three by the next voice in turn.

    Raises `ValueError` for fewer than three texts.
    """
    if len(texts) < TURNS:
        raise ValueError(f"a dialogue needs {TURNS} texts, there are only {len(texts)}")
    return [
        [Line(text, voices[number % len(voices)]) for text in texts[start : start + TURNS]]
        for number, start in enumerate(range(0, len(texts) - TURNS + 1, TURNS))
    ]


def speak_dialogues(
    voice: EngineVoice,
    dialogues: Sequence[Sequence[Line]],
    longest_s: Sequence[Sequence[float]],
    codec: AudioCodec,
    tokenizer: PlainTokenizer,
) -> list[list[Said]]:
    """Return what was said in turn 1, 2 and 3 of all dialogues."""
    earlier: list[list[Turn]] = [[] for _ in dialogues]
    users = _user_turns(dialogues, codec, tokenizer, voice.info.n_vq)
    said = []
    for number in range(TURNS):
        replies = voice.reply(
            [lines[number] for lines in dialogues], earlier, [limit[number] for limit in longest_s]
        )
        said.append([reply.said for reply in replies])
        for turns, reply, user in zip(earlier, replies, users, strict=True):
            turns += [reply.turn, user[number]]
    return said


def _user_turns(
    dialogues: Sequence[Sequence[Line]],
    codec: AudioCodec,
    tokenizer: PlainTokenizer,
    codebooks: int,
) -> list[list[Turn]]:
    """The user of each dialogue: the teacher, in another voice than the reply's."""
    texts = read_texts("user")
    lines = [
        Line(texts[(number + TURNS * index) % len(texts)], _another(lines[0].voice))
        for index, lines in enumerate(dialogues)
        for number in range(TURNS)
    ]
    turns = [
        Turn("user", tuple(tokenizer.encode(one.line.text)), encode(codec, one, codebooks))
        for one in teacher_speech(lines)
    ]
    return [turns[start : start + TURNS] for start in range(0, len(turns), TURNS)]


def _another(voice: str) -> str:
    names = list(TEACHER_VOICES)
    return names[(names.index(voice) + 1) % len(names)] if voice in names else names[0]
