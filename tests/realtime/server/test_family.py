"""Every model through `POST /v1/audio/speech`: its fields, its sound, its mistakes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from engine.api import Encode, Open, TextSampling
from engine.index_sound import chirp
from engine.models.variants import VARIANTS
from tests.realtime.server.families import family_server
from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

pytestmark = pytest.mark.slow

SPEECH = "/v1/audio/speech"
CLIP = "data:audio/wav;base64," + base64.b64encode(packed(tone(2))).decode()
OTHER_CLIP = "data:audio/wav;base64," + base64.b64encode(packed(tone(1.5))).decode()
EXAMPLES: dict[str, dict[str, Any]] = {
    "realtime": {"input": "Hi."},
    "tts": {"input": "Hi."},
    "ttsd": {"input": "[S1]Hi.[S2]Ho."},
    "sound_effect": {"input": "rain"},
    "voice_generator": {"input": "Hi.", "instructions": "a calm man"},
    "local": {"input": "Hi."},
    "nano": {"input": "Hi."},
}
TTSD_SIX = "".join(f"[S{number}]Hi." for number in range(1, 7))


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture
def serve(run_server: Callable[..., RunningServer]):
    def serve(variant: str, **changes: Any) -> RunningServer:
        script, settings = family_server(variant, **changes)
        return run_server(script, **settings)

    return serve


def commands(server: RunningServer, kind: type) -> list[Any]:
    return [command for _, command in server.engine.log if isinstance(command, kind)]


def speak(server: RunningServer, **body: Any) -> httpx.Response:
    return httpx.post(server.base_url + SPEECH, json={"response_format": "wav"} | body)


def speaker(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"S{number}", "ref_audio": CLIP} | more


# model: (fields over the model's example, code, param, part of the message)
BAD: dict[str, list[tuple[dict[str, Any], str, str, str]]] = {
    "realtime": [
        ({"ref_text": "hello", "ref_audio": CLIP}, "unsupported", "ref_text", "'hello' cannot"),
        ({"language": "English"}, "unsupported", "language", "MOSS-TTS-Realtime"),
        ({"duration_seconds": 3}, "unsupported", "duration_seconds", "input, history, ref_audio"),
        ({"speakers": [speaker(1)]}, "unsupported", "speakers", "'S1'"),
        ({"text_top_k": 3}, "unsupported", "text_top_k", "for models that draw text"),
        ({"history": [{"role": "user"}]}, "invalid_field", "history", "neither `text` nor"),
        ({"history": [{"role": "system", "text": "x"}]}, "invalid_field", "history", "'system'"),
        ({"history": [{"text": "x"}]}, "missing_field", "history", "history.0.role"),
        (
            {"history": [{"role": "user", "audio": CLIP, "audio_codes": [[1]]}]},
            *("conflict", "history", "history[0]"),
        ),
        (
            {"history": [{"role": "user", "audio_codes": [[1, 2, 3]]}]},
            *("invalid_field", "history", "frame 0 has 3 codes, not"),
        ),
        (
            {"history": [{"role": "user", "audio_codes": "NARROW"}]},
            *("invalid_field", "history", "outside"),
        ),
        (
            {"history": [{"role": "user", "audio": "x.wav"}]},
            "invalid_field",
            "history",
            "history[0",
        ),
    ],
    "tts": [
        ({"language": "Klingon"}, "invalid_field", "language", "'Klingon' is not one of Chinese"),
        ({"duration_seconds": 0}, "invalid_field", "duration_seconds", "is 0; MOSS-TTS makes"),
        ({"duration_seconds": -2}, "invalid_field", "duration_seconds", "is -2"),
        ({"duration_seconds": 1e9}, "invalid_field", "duration_seconds", "at most 600 seconds"),
        ({"duration_seconds": "long"}, "invalid_field", "duration_seconds", "'long'"),
        ({"ref_text": "hello"}, "missing_reference", "ref_text", "there is neither"),
        ({"ambient_sound": "rain"}, "conflict", "ambient_sound", "cannot be used by MOSS-TTS"),
        ({"ref_audio_2": CLIP}, "unsupported", "ref_audio_2", "cannot be used by MOSS-TTS"),
        ({"history": [{"role": "user", "text": "x"}]}, "unsupported", "history", "'user'"),
        (
            {"ref_audio": CLIP, "references": [{"audio_path": CLIP}]},
            *("conflict", "references", "send one"),
        ),
        ({"references": []}, "invalid_field", "references", "at least 1"),
        ({"references": [{"audio": CLIP}]}, "missing_field", "references", "references.0"),
        ({"text_normalizer": "wetext"}, "unsupported", "text_normalizer", "released, off"),
        ({"input": "x" * 8001}, "string_above_max_length", "input", "at most 8000"),
    ],
    "ttsd": [
        ({"input": TTSD_SIX}, "too_many_speakers", "input", "has [S6]; MOSS-TTSD knows"),
        ({"input": "[S0]Hi."}, "too_many_speakers", "input", "has [S0]"),
        (
            {"speakers": [speaker(number) for number in range(1, 4)]},
            *("superfluous_reference", "speakers", "no [S3]"),
        ),
        (
            {"input": TTSD_SIX[:-7], "speakers": [speaker(number) for number in range(1, 7)]},
            *("too_many_speakers", "speakers", "S1 to S5, not 'S6'"),
        ),
        ({"speakers": [speaker(1)]}, "missing_reference", "speakers", "[S2] speaks in `input`"),
        (
            {"speakers": [speaker(1), {"id": "S2"}]},
            *("missing_reference", "speakers", "S2 has no reference"),
        ),
        (
            {"speakers": [speaker(1), speaker(2, voice="male")]},
            *("conflict", "speakers", "two references"),
        ),
        ({"speakers": [speaker(1), speaker(1)]}, "conflict", "speakers", "S1 is there twice"),
        ({"speakers": [{"id": "Bob", "ref_audio": CLIP}]}, "invalid_field", "speakers", "'Bob'"),
        ({"speakers": [speaker(3)]}, "superfluous_reference", "speakers", "no [S3]"),
        ({"speakers": [speaker(1)], "voice": "male"}, "conflict", "speakers", "leave voice"),
        (
            {"speakers": [speaker(1, ref_text="Hello."), speaker(2)]},
            *("missing_field", "speakers", "has no `ref_text`"),
        ),
        ({"ref_audio": CLIP}, "missing_reference", "speakers", "[S2] speaks"),
        ({"input": "x" * 80_001}, "string_above_max_length", "input", "at most 80000"),
        ({"duration_seconds": 3}, "unsupported", "duration_seconds", "as long as its text"),
        ({"speakers": []}, "invalid_field", "speakers", "at least 1"),
        ({"speakers": [speaker(1, colour="red")]}, "unknown_field", "speakers", "0.colour"),
    ],
    "sound_effect": [
        ({"ref_audio": CLIP}, "unsupported", "ref_audio", "makes sounds, not voices"),
        ({"voice": "alloy"}, "unsupported", "voice", "makes sounds, not voices"),
        ({"speaker": "male"}, "unsupported", "speaker", "makes sounds, not voices"),
        ({"references": [{"audio_path": CLIP}]}, "unsupported", "references", "not voices"),
        ({"ambient_sound": "wind"}, "conflict", "ambient_sound", "another way to write"),
        ({"instructions": "loud"}, "unsupported", "instructions", "describe the sound"),
        ({"input": " ", "ambient_sound": ""}, "input_blank", "input", "nothing to say"),
        ({"duration_seconds": 0}, "invalid_field", "duration_seconds", "more than 0"),
        ({"duration_seconds": 601}, "invalid_field", "duration_seconds", "at most 600"),
        (
            {"input": "", "ambient_sound": "x" * 8001},
            *("string_above_max_length", "ambient_sound", "8001 characters"),
        ),
    ],
    "voice_generator": [
        ({"instructions": None}, "missing_field", "instructions", "requires `instructions`"),
        ({"instructions": "  "}, "missing_field", "instructions", "describe the voice"),
        ({"ref_audio": CLIP}, "unsupported", "ref_audio", "from its description"),
        ({"voice": "alloy"}, "unsupported", "voice", "from its description"),
        ({"language": "xx"}, "invalid_field", "language", "'xx'"),
    ],
    "local": [
        ({"speakers": [speaker(1)]}, "unsupported", "speakers", "cannot be used"),
        ({"n_vq": 8}, "unsupported", "n_vq", "8 cannot be used by MOSS-TTS-Local"),
        ({"ref_text": "hello"}, "missing_reference", "ref_text", "there is neither"),
        ({"sample_rate": 44_100}, "unsupported_rate", "sample_rate", "speaks at 48000"),
        ({"response_format": "aac"}, "unsupported_format", "response_format", "'aac'"),
        ({"duration_seconds": -1}, "invalid_field", "duration_seconds", "is -1"),
    ],
    "nano": [
        ({"language": "English"}, "unsupported", "language", "the language from the text"),
        ({"duration_seconds": 2}, "unsupported", "duration_seconds", "length from the text"),
        ({"instructions": "slowly"}, "unsupported", "instructions", "cannot be used"),
        ({"sample_rate": 0}, "unsupported_rate", "sample_rate", "0 is not one of 8000"),
        ({"n_vq": 17}, "invalid_field", "n_vq", "is 17; the model has 1 to 16"),
        ({"n_vq": 0}, "invalid_field", "n_vq", "not 0"),
    ],
}


def test_bad_input_is_told_what_the_model_takes(serve, variant) -> None:
    server = serve(variant)
    n_vq = server.services.models.first.speech.n_vq
    encoded = len(commands(server, Encode))
    for fields, code, param, message in BAD[variant]:
        fields = json.loads(json.dumps(fields).replace('"NARROW"', str([[70_000] * n_vq])))
        answer = speak(server, **EXAMPLES[variant] | fields)
        error = answer.json()["error"]
        label = (str(fields)[:80], error)
        assert (answer.status_code, error["code"], error["param"]) == (400, code, param), label
        assert message in error["message"], label
        assert len(error["message"]) < 500, label
    assert commands(server, Open) == []
    assert len(commands(server, Encode)) == encoded
    assert speak(server, **EXAMPLES[variant]).status_code == 200


def test_true_rate_and_channels_in_headers_and_file(serve, variant, decode) -> None:
    server = serve(variant)
    info = server.services.models.first.info
    answer = speak(server, **EXAMPLES[variant])
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-audio-sample-rate"] == str(info.rate_hz)
    assert answer.headers["x-audio-channels"] == str(info.channels)
    assert answer.headers["x-model"] == info.name
    heard, rate_hz = decode("wav", answer.content)
    assert (rate_hz, heard.shape[1]) == (info.rate_hz, info.channels)
    expected = chirp(0, len(heard), rate_hz)
    np.testing.assert_allclose(heard[:, 0], expected, atol=1.01 / 32767)
    np.testing.assert_array_equal(heard, np.repeat(heard[:, :1], info.channels, axis=1))


def test_usage_and_how_it_ended(serve, variant) -> None:
    server = serve(variant)
    answer = speak(server, **EXAMPLES[variant], stream_format="sse", max_new_tokens=2)
    done = json.loads(answer.text.strip().split("\n\n")[-1].split("data: ")[1])
    assert done["finish_reason"] == "length"
    assert done["usage"]["output_tokens"] == 2
    assert done["usage"]["input_token_details"]["text_tokens"] > 0
    assert done["audio_duration_ms"] == 160


@pytest.mark.parametrize("audio_format", ["wav", "pcm", "flac", "mp3", "opus"])
def test_stereo_at_another_rate_in_every_format(serve, decode, audio_format) -> None:
    server = serve("local")
    answer = speak(server, input="Hi.", response_format=audio_format, sample_rate=16_000)
    assert answer.headers["x-audio-sample-rate"] == "16000"
    assert answer.headers["x-audio-channels"] == "2"
    if audio_format == "pcm":
        assert answer.headers["content-type"] == "audio/pcm;rate=16000;channels=2"
        assert len(answer.content) == 5 * 1280 * 2 * 2
    else:
        heard, rate_hz = decode(audio_format, answer.content)
        assert heard.shape[1] == 2
        if audio_format != "opus":  # which is always decoded at 48 kHz
            assert rate_hz == 16_000


def opened(server: RunningServer, **body: Any) -> Open:
    answer = speak(server, **body)
    assert answer.status_code == 200, answer.text
    return commands(server, Open)[-1]


def test_cloning_continuation_and_plain(serve) -> None:
    server = serve("tts")
    plain = opened(server, input="Hi.")
    clone = opened(server, input="Hi.", ref_audio=CLIP)
    same = opened(server, input="Hi.", references=[{"audio_path": CLIP}])
    goes_on = opened(server, input="Hi.", ref_audio=CLIP, ref_text="Hello.")
    stored = opened(server, input="Hi.", voice="male")
    told = opened(server, input="Hi.", voice="male", ref_text="Hello.")
    assert [len(one.decoder_codes) for one in (plain, clone, goes_on, stored)] == [0, 0, 25, 0]
    np.testing.assert_array_equal(clone.grid, same.grid)
    assert len(goes_on.grid) > len(clone.grid) > len(plain.grid)
    codes = server.services.models.first.voices.get("male").codes
    np.testing.assert_array_equal(told.decoder_codes, codes)


def test_language_duration_and_instructions_are_in_the_prompt(serve) -> None:
    server = serve("tts")
    speech = server.services.models.first.speech
    grid = opened(
        server, input="Hi.", language="fr", duration_seconds=4, instructions="slowly"
    ).grid
    text = speech.prompt.tokenizer.decode(
        [i for i in grid[:, 0].tolist() if i < speech.prompt.form.pad]
    )
    assert "- Language:\nFrench\n" in text
    assert "- Tokens:\n50\n" in text
    assert "- Instruction:\nslowly\n" in text


def test_dialogues_of_up_to_five_speakers(serve) -> None:
    server = serve("ttsd")
    text = TTSD_SIX[: -len("[S6]Hi.")]
    speakers = [speaker(number) for number in range(1, 6)]
    speakers[3] = {"id": "S4", "voice": "default"}
    answer = speak(server, input=text, speakers=speakers)
    assert answer.headers["x-voice"] == ",".join(["ref_audio"] * 4)
    [clone] = commands(server, Open)
    form = server.services.models.first.speech.prompt.form
    assert (clone.grid[:, 0] == form.audio_start).sum() == 4
    told = [speaker(1, ref_text="One."), {"id": "S2", "voice": "male"}]
    both = opened(server, input="[S1]Hi.[S2]Ho.", speakers=told)
    frames = len(server.services.models.first.voices.get("male").codes)
    assert len(both.decoder_codes) == 25 + frames
    two = opened(server, input="[S1]Hi.[S2]Ho.", ref_audio=CLIP, ref_audio_2=OTHER_CLIP)
    assert (two.grid[:, 0] == form.audio_start).sum() == 2
    assert clone.max_frames == 3_600 * 1000 // 80


def test_a_sound_is_described_by_input_or_ambient_sound(serve) -> None:
    server = serve("sound_effect")
    grids = [
        opened(server, **body).grid
        for body in (
            {"input": "rain on a roof"},
            {"input": "", "ambient_sound": "rain on a roof"},
            {"ambient_sound": "rain on a roof"},
        )
    ]
    assert all(np.array_equal(grids[0], grid) for grid in grids)
    assert len(opened(server, input="rain on a roof", duration_seconds=10).grid) != len(grids[0])


def test_a_made_voice_can_be_stored_and_spoken_with(serve, tmp_path) -> None:
    maker = serve("voice_generator", tail_frames=20)
    sound = speak(maker, **EXAMPLES["voice_generator"]).content
    form, files = {"name": "calm man", "ref_text": "Hi."}, {"audio": ("a.wav", sound)}
    answer = httpx.post(f"{maker.base_url}/v1/voices", data=form, files=files)
    assert answer.status_code == 200, answer.text
    cloner = serve("local")  # with another codec, so that it has to encode the voice itself
    cloned = opened(cloner, input="Hi.", voice="calm man")
    assert (cloned.grid[:, 1] < 48).sum() == 20


def test_long_text_of_nano_is_spoken_in_chunks_with_pauses(serve, decode) -> None:
    server = serve("nano")
    text = "The quick brown fox jumps over the lazy dog near the river bank. " * 8
    answer = speak(server, input=text, text_normalizer="off", seed=7, max_new_tokens=9)
    rows = commands(server, Open)
    assert len(rows) > 2
    assert len({row.row for row in rows}) == len({row.seed for row in rows}) == len(rows)
    assert rows[0].seed == 7
    assert {row.max_frames for row in rows} == {9}
    heard, rate_hz = decode("wav", answer.content)
    pauses = len(rows) - 1
    sound_samples = len(rows) * 5 * 3_840
    assert len(heard) == sound_samples + round(pauses * 0.24 * rate_hz)
    assert not heard[5 * 3_840 : 5 * 3_840 + round(0.24 * rate_hz)].any()


def test_fewer_codebooks_of_nano(serve) -> None:
    server = serve("nano")
    few = opened(server, input="Hi.", n_vq=8)
    assert (few.n_vq, few.generated.shape, few.decoder_codes.shape) == (8, (0, 8), (0, 8))
    speech = server.services.models.first.speech
    sounds = few.grid[few.grid[:, 0] == speech.prompt.grids.user_slot, 1:]
    assert len(sounds)
    assert (sounds[:, :8] < 40).all()
    assert (sounds[:, 8:] == 40).all()
    told = opened(server, input="Hi.", n_vq=8, voice="male", ref_text="Hello.")
    assert told.decoder_codes.shape[1] == 8
    assert opened(server, input="Hi.").n_vq is None


def test_how_text_is_drawn(serve) -> None:
    server = serve("tts", text_sampling_defaults=TextSampling(1.5, 1.0, 50))
    assert opened(server, input="Hi.").text_sampling is None
    asked = opened(server, input="Hi.", text_temperature=0.5, text_top_k=7)
    assert asked.text_sampling == TextSampling(0.5, 1.0, 7)


def test_realtime_speaks_with_a_dialogue_before_it(serve) -> None:
    server = serve("realtime")
    n_vq = server.services.prompt.n_vq
    alone = opened(server, input="Hi.")
    history = [
        {"role": "user", "text": "Who is there?"},
        {"role": "assistant", "text": "Me.", "audio_codes": [[1] * n_vq] * 4},
        {"role": "user", "text": "Who?", "audio": CLIP},
    ]
    told = opened(server, input="Hi.", history=history)
    assert len(told.decoder_codes) == 4
    assert len(told.grid) > len(alone.grid) + 4 + 25
    assert commands(server, Encode)[-1].loudness == "keep"


def test_only_models_of_dialogues_have_sessions(serve, variant) -> None:
    server = serve(variant)
    headers = {
        **{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"},
        **{
            "Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==",
            "Sec-WebSocket-Protocol": "moss.v1.json",
        },
    }
    if variant != "realtime":
        answer = httpx.get(f"{server.base_url}/v1/speech", headers=headers)
        assert answer.status_code == 404
        assert "no model of this server holds dialogues" in answer.json()["error"]["message"]


def test_what_each_model_can_do_is_listed(serve, variant) -> None:
    server = serve(variant)
    [model] = httpx.get(f"{server.base_url}/v1/models").json()["data"]
    can = model["capabilities"]
    info = server.services.models.first.info
    assert model["id"] == info.name
    assert (can["sample_rate"], can["channels"], can["frame_ms"]) == (
        info.rate_hz,
        info.channels,
        80.0,
    )
    assert can["streaming"] is True
    assert can["sessions"] is (variant == "realtime")
    assert can["history"] is (variant == "realtime")
    assert can["max_speakers"] == {"ttsd": 5, "sound_effect": 0, "voice_generator": 0}.get(
        variant, 1
    )
    assert (can["references"] is None) is (variant in ("sound_effect", "voice_generator"))
    assert ("English" in can["languages"]) is (
        variant in ("tts", "ttsd", "voice_generator", "local")
    )
    assert can["instructions"] is (variant in ("tts", "voice_generator", "local"))
    assert (can["max_duration_s"] is not None) is (variant in ("tts", "sound_effect", "local"))
    assert can["max_audio_s"] == (3_600 if variant == "ttsd" else 600)
    assert can["max_input_chars"] == (80_000 if variant == "ttsd" else 8_000)
    assert speak(server, **can["example"]).status_code == 200
    one = httpx.get(f"{server.base_url}/v1/models/{model['id']}").json()
    assert one["capabilities"] == can
