"""Codes of recordings: what the codec gives, made once."""

import numpy as np
import pytest
import torch

from engine.codec.codec import load_codec
from engine.codec.reference import normalise_loudness
from engine.models.realtime_prompt import RealtimePrompt
from engine.train.finetune.dialogue import reference_of, turns_of
from engine.train.finetune.encoding import CodeBook
from engine.train.finetune.manifest import Clip, Earlier
from engine.train.finetune.sound import read_recording, without_silence
from engine.train.journal import Journal
from tests.engine.train.finetune.recordings import CODEC, MODEL, TEXT, babble, write

SILENCE = np.zeros(24_000, np.float32)


@pytest.fixture
def book(tmp_path):
    return CodeBook(tmp_path / "codes", CODEC, 16, "cpu")


@pytest.fixture
def clip(tmp_path):
    write(tmp_path / "a.wav", np.concatenate([SILENCE, 0.1 * babble(2), SILENCE]))
    return tmp_path / "a.wav"


def encoded(pcm):
    codec = load_codec(CODEC)
    padded = np.pad(pcm, (0, -len(pcm) % 96))
    return codec.encode(torch.from_numpy(padded)[None, None], n_codebooks=16)[0][:, 0].T.numpy()


def test_user_audio_is_encoded_as_it_is(book, clip):
    codes = book.codes(clip, "user")
    assert codes.dtype == np.uint16
    np.testing.assert_array_equal(codes, encoded(read_recording(clip, 1200, 60).pcm))


def test_a_reply_is_without_silence_and_a_reference_louder_too(book, clip):
    user, reply, reference = (book.codes(clip, use) for use in ("user", "reply", "reference"))
    assert len(user) == 50
    assert 28 <= len(reply) == len(reference) <= 32
    assert not np.array_equal(reply, reference)
    speech = without_silence(read_recording(clip, 1200, 60)).pcm
    np.testing.assert_array_equal(reply, encoded(speech))
    np.testing.assert_array_equal(reference, encoded(normalise_loudness(speech)))


def test_codes_are_made_once_and_anew_for_a_changed_recording(book, clip, tmp_path):
    first = book.codes(clip, "reply")
    again = CodeBook(tmp_path / "codes", CODEC, 16, "cpu")
    again._codec = "not needed"
    np.testing.assert_array_equal(again.codes(clip, "reply"), first)
    write(clip, babble(3, seed=5))
    assert len(book.codes(clip, "reply")) == 38


def test_all_recordings_of_a_clip_are_encoded_before_they_are_needed(book, clip, tmp_path):
    for name in ("u", "r"):
        write(tmp_path / f"{name}.wav", babble(1 + ord(name) % 3, seed=ord(name)))
    user = Earlier("user", "Hello?", tmp_path / "u.wav")
    said = Earlier("assistant", TEXT, clip)
    silent = Earlier("user", "And now?", None)
    whole = Clip(1, clip, TEXT, turns=(user, said, silent), reference=tmp_path / "r.wav")
    book.encode_all([whole], Journal(tmp_path / "codes", "codes"))
    book._codec = "not needed"
    turns = turns_of(whole, RealtimePrompt.from_checkpoint(MODEL), book.codes)
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert [len(turn.codes) > 0 for turn in turns] == [True, True, False, True]
    assert len(reference_of(whole, book.codes)) > 0
