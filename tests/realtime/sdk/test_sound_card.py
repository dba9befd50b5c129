"""The sound card's sink, with a stand-in for the package that drives the device."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from realtime.sdk import PlaybackUnavailable, SoundCard, sound_card

RATE_HZ = 24000
BLOCK = 240  # samples, 10 ms
DELAY_S = 0.03


class Device:
    """What `sounddevice.RawOutputStream` is asked for, and a device that asks for blocks."""

    def __init__(self, **settings) -> None:
        self.settings = settings
        self.is_closed = False
        self.latency = 0.05
        self.timing = types.SimpleNamespace(currentTime=7.0, outputBufferDacTime=7.0 + DELAY_S)

    def start(self) -> None:
        assert not self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def block(self) -> np.ndarray:
        out = memoryview(bytearray(b"\x55" * 2 * BLOCK * self.settings["channels"]))
        self.settings["callback"](out, BLOCK, self.timing, None)
        return np.frombuffer(out, "<i2").reshape(BLOCK, -1)


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=100.0)
    monkeypatch.setattr(sound_card.time, "monotonic", lambda: now.s)
    return now


@pytest.fixture
def card(monkeypatch, clock):
    module = types.SimpleNamespace(RawOutputStream=Device, PortAudioError=RuntimeError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    card = SoundCard()
    card.open(RATE_HZ, 1)
    return card


def sound(first: int, count: int, channels: int = 1) -> bytes:
    return np.repeat(np.arange(first, first + count, dtype="<i2"), channels).tobytes()


def test_every_sample_is_handed_over_once_and_silence_where_there_is_none(card):
    device = card._stream
    assert device.settings["samplerate"] == RATE_HZ
    assert device.settings["dtype"] == "int16"
    card.write(sound(1, 300))
    card.write(sound(301, 60))
    handed = np.concatenate([device.block()[:, 0] for _ in range(3)])
    np.testing.assert_array_equal(handed, np.r_[1:361, np.zeros(360)])
    card.close()
    assert device.is_closed


def test_heard_is_what_has_left_the_loudspeaker(card, clock):
    card.write(sound(1, 2 * BLOCK))
    card._stream.block()
    assert card.heard_samples() == 0
    clock.s += DELAY_S
    assert card.heard_samples() == 0
    clock.s += 0.005
    assert card.heard_samples() == BLOCK // 2
    clock.s += 0.1
    assert card.heard_samples() == BLOCK  # the device ran dry there
    card._stream.block()
    assert card.heard_samples() == BLOCK
    clock.s += DELAY_S + 0.01
    assert card.heard_samples() == 2 * BLOCK


def test_a_driver_that_does_not_say_when_is_believed_its_latency(card, clock):
    card._stream.timing = types.SimpleNamespace(currentTime=0.0, outputBufferDacTime=0.0)
    card.write(sound(1, BLOCK))
    card._stream.block()
    clock.s += 0.055
    assert card.heard_samples() == BLOCK // 2


def test_stop_fades_forgets_and_counts_anew(card, clock):
    level = 10_000
    card.write(np.full(20 * BLOCK, level, "<i2").tobytes())
    card._stream.block()
    clock.s += DELAY_S + 0.005
    assert card.stop() == BLOCK // 2
    assert card.heard_samples() == 0
    card.write(np.full(BLOCK, 77, "<i2").tobytes())
    tail = card._stream.block()[:, 0]
    fade = RATE_HZ * 8 // 1000
    assert level > tail[0] > level * 0.98
    assert (np.diff(tail[:fade]) < 0).all()
    assert tail[fade - 1] == 0
    np.testing.assert_array_equal(tail[fade:], 77)
    clock.s += DELAY_S
    assert card.heard_samples() == 0  # the fade counts for nothing, and takes its time
    clock.s += BLOCK / RATE_HZ
    assert card.heard_samples() == BLOCK - fade


def test_channels_fade_together(monkeypatch, card):
    card.open(RATE_HZ, 2)
    card.write(np.full(4 * BLOCK, 10_000, "<i2").tobytes())
    card.stop()
    tail = card._stream.block()
    np.testing.assert_array_equal(tail[:, 0], tail[:, 1])
    assert tail[0, 0] > 9000


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(PlaybackUnavailable, match=r"pip install moss-realtime\[play\]"):
        SoundCard().open(RATE_HZ, 1)


def test_a_missing_library_says_how_to_get_it(monkeypatch):
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "sounddevice":
                raise OSError("PortAudio library not found")

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(PlaybackUnavailable, match="libportaudio2"):
        SoundCard().open(RATE_HZ, 1)


def test_a_device_that_will_not_play_is_named(monkeypatch, card):
    def refuses(**settings):
        raise RuntimeError("Invalid sample rate [PaErrorCode -9997]")

    monkeypatch.setattr(sys.modules["sounddevice"], "RawOutputStream", refuses)
    with pytest.raises(PlaybackUnavailable, match=r"'hw:9' does not play 24000 Hz.* -9997"):
        SoundCard("hw:9").open(RATE_HZ, 1)
