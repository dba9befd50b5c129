"""The contexts a session opens are, grid row for grid row, those of the golden conversation."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.api import Counts, Done, Encoded, Feed, Frames, Segment
from realtime.protocol.frames import AudioFrame, Flags

VECTORS = Path(__file__).parents[2] / "vectors" / "realtime"
TURNS = json.loads((VECTORS / "multiturn.json").read_text())
LAYOUTS = {"upstream_streaming": "multiturn", "training": "multiturn_trainlayout"}


def b64(codes: np.ndarray) -> str:
    return base64.b64encode(codes.astype("<u2").tobytes()).decode()


class Golden:
    """Plays the golden conversation, the vector's frames standing in for the model's."""

    def __init__(self, talk, layout: str, spoken: bool) -> None:
        name = LAYOUTS[layout]
        self.talk = talk
        self.spoken = spoken
        self.data = load_file(VECTORS / f"{name}.safetensors")
        self.texts = TURNS[name]["turns"]
        # The inputs are the same for both layouts, and are stored with the first.
        inputs = load_file(VECTORS / "multiturn.safetensors")
        self.user_codes = [inputs[f"turn{t}_user_codes"] for t in range(3)]
        talk.say("session.start", layout=layout)

    def frames(self, turn: int) -> np.ndarray:
        """Frames that are in the cache: all but the last generated one."""
        return self.data[f"turn{turn}_frames"][:-1].astype(np.uint16)

    def play(self, turn: int) -> None:
        talk, texts = self.talk, self.texts[turn]
        if self.spoken:
            self.speak(turn, texts["user"])
        else:
            audio = {"codes": b64(self.user_codes[turn])}
            talk.say("item.create", item={"role": "user", "text": texts["user"], "audio": audio})
        talk.say("response.start", response_id=f"r{turn}", text=texts["assistant"], end=True)
        row = talk.opens()[-1].row
        ids = [i for c in talk.commands if isinstance(c, Feed) and c.row == row for i in c.ids]
        assert ids == self.data.get(f"turn{turn}_text_ids", np.array(ids)).tolist()
        codes = self.frames(turn)
        consumed = min(len(ids), 12 + len(codes))
        pcm = np.zeros((len(codes) * 1920, 1), np.float32)
        talk.event(Frames(row, 0, codes, np.ones(len(codes), bool), pcm, False))
        talk.event(Segment(row, 0, len(codes), consumed, "eos"))
        talk.event(Done(row, "completed", "", Counts()))

    def speak(self, turn: int, text: str) -> None:
        """Send sound, commit it, and have the engine encode it to the vector's codes."""
        talk, codes = self.talk, self.user_codes[turn].astype(np.uint16)
        sound = AudioFrame(0x11, Flags.NONE, 0, turn, 0, 480, 0, bytes(960))
        talk.carry_out(talk.session.receive_audio(sound.pack(), talk.now_ms))
        talk.say("input_audio.commit", text=text)
        stream = talk.commands[-1].stream
        talk.event(Encoded(stream, 0, codes[:1], False))
        talk.event(Encoded(stream, 1, codes[1:], True))


@pytest.fixture
def golden(new_talk, clone_voices):
    return lambda layout, spoken=False: Golden(new_talk(voices=clone_voices), layout, spoken)


@pytest.mark.parametrize("spoken", [False, True])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_turns_context_equals_the_vectors(golden, layout, spoken):
    conversation = golden(layout, spoken)
    for turn in range(3):
        conversation.play(turn)
        grid = conversation.talk.opens()[-1].grid
        before = [conversation.data[f"turn{t}_backbone_grid"] for t in range(turn)]
        expected = np.concatenate([*before, conversation.data[f"turn{turn}_input_ids"]])
        np.testing.assert_array_equal(grid, expected)


def test_the_codec_goes_on_after_the_assistants_frames(golden):
    conversation = golden("training")
    for turn in range(3):
        conversation.play(turn)
    expected = np.concatenate([conversation.frames(0), conversation.frames(1)])
    sounding = expected[(expected < 1024).all(axis=1)]
    np.testing.assert_array_equal(conversation.talk.opens()[-1].decoder_codes, sounding)
