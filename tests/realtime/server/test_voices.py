"""`/v1/voices` over HTTP: uploads, their life, and every bad recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx
import numpy as np
import openai

from engine.api import Open
from engine.fake import FakeScript
from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

RunServer = Callable[..., "RunningServer"]

VOICES = "/v1/voices"


def upload(
    client: httpx.Client, name: str, audio: bytes, path: str = VOICES, **fields: str
) -> httpx.Response:
    return client.post(path, data={"name": name} | fields, files={"audio": ("a.wav", audio)})


def names(client: httpx.Client) -> list[str]:
    return [voice["name"] for voice in client.get(VOICES).json()["data"]]


def test_the_shipped_voices_are_listed_and_cannot_be_changed(
    running_server: RunningServer,
) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        listing = client.get(VOICES).json()
        assert listing == client.get("/v1/audio/voices").json()
        assert [voice["name"] for voice in listing["data"]] == ["bright", "male", "alto", "heart"]
        heart = listing["data"][-1]
        assert heart.keys() == {
            *("id", "object", "name", "created_at", "type", "builtin", "duration_s", "status")
        }
        assert (heart["builtin"], heart["duration_s"], heart["status"]) == (True, 3.92, "ready")
        one = client.get(f"{VOICES}/Heart").json()
        assert one == client.get(f"{VOICES}/{heart['id']}").json()
        assert one["ref_text"] == "I found five results for warm recipes near Toronto."
        forbidden = client.delete(f"{VOICES}/heart")
        assert (forbidden.status_code, forbidden.json()["error"]["code"]) == (403, "builtin_voice")
        taken = upload(client, "HEART", packed(tone(2)))
        assert (taken.status_code, taken.json()["error"]["code"]) == (409, "name_taken")
        assert len(names(client)) == 4


def test_an_upload_speaks_survives_a_restart_and_can_be_deleted(run_server: RunServer) -> None:
    first = run_server()
    recording = packed(tone(3, 48_000, channels=2), 48_000, format="FLAC")
    with httpx.Client(base_url=first.base_url) as client:
        made = upload(client, " Mia ", recording, ref_text="La la.", consent="c-1")
        assert made.status_code == 200, made.text
        voice = made.json()
        assert (voice["name"], voice["duration_s"], voice["builtin"]) == ("Mia", 3.0, False)
        speech = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "mia"})
        assert speech.headers["x-voice"] == "Mia"
    stored = first.services.voices.get("MIA")
    assert stored is not None
    assert stored.codes.shape == (38, first.services.prompt.n_vq)
    assert first.engine is not None
    [opened] = [command for _, command in first.engine.log if isinstance(command, Open)]
    prompt = first.services.prompt
    np.testing.assert_array_equal(opened.grid, prompt.dialogue([], stored.codes))

    second = run_server()
    again = second.services.voices.get(voice["id"])
    assert again is not None
    np.testing.assert_array_equal(again.codes, stored.codes)
    with httpx.Client(base_url=second.base_url) as client:
        assert names(client)[-1] == "Mia"
        one = client.get(f"{VOICES}/mia").json()
        assert one == voice | {"ref_text": "La la."}
        assert "consent" not in one
        gone = client.delete(f"{VOICES}/mia")
        assert gone.json() == {
            "id": voice["id"],
            "object": "audio.voice.deleted",
            "deleted": True,
        }
        assert client.delete(f"{VOICES}/mia").status_code == 404
        assert client.get(f"{VOICES}/mia").status_code == 404
        assert len(names(client)) == 4
    assert len(run_server().services.voices.all()) == 4


def test_a_name_in_any_script_travels_in_a_header(running_server: RunningServer) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        assert upload(client, "Zo\u00eb \u4f60\u597d", packed(tone(2))).status_code == 200
        body = {"input": "Hi.", "voice": "zo\u00cb \u4f60\u597d"}
        answer = client.post("/v1/audio/speech", json=body)
        assert unquote(answer.headers["x-voice"]) == "Zo\u00eb \u4f60\u597d"


def test_openai_package(running_server: RunningServer) -> None:
    with openai.OpenAI(
        base_url=f"{running_server.base_url}/v1", api_key="none", max_retries=0
    ) as client:
        made = client.audio.voices.create(
            name="Mia", audio_sample=("a.wav", packed(tone(2))), consent="c-1", type="audio_sample"
        )
        assert (made.name, made.object, made.type) == ("Mia", "audio.voice", "audio_sample")
        spoken = client.audio.speech.create(model="tts-1", voice={"id": made.id}, input="Hi.")
        assert spoken.response.headers["x-voice"] == "Mia"


def test_the_same_name_replaces_and_the_same_recording_is_no_second_voice(
    running_server: RunningServer,
) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        first = upload(client, "Mia", packed(tone(2))).json()
        assert upload(client, "mia", packed(tone(2))).json() == first
        twin = upload(client, "Zoe", packed(tone(2)))
        assert (twin.status_code, twin.json()["error"]["code"]) == (409, "voice_exists")
        second = upload(client, "MIA", packed(tone(3))).json()
        assert second["id"] != first["id"]
        assert names(client)[4:] == ["MIA"]
        assert client.get(f"{VOICES}/{first['id']}").status_code == 404


def test_a_voice_gets_another_name_or_transcript(running_server: RunningServer) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        mia = upload(client, "Mia", packed(tone(2)), ref_text="Lo.", consent="c-1").json()
        zoe = client.patch(f"{VOICES}/mia", json={"name": "Zoe"}).json()
        assert zoe == mia | {"name": "Zoe", "ref_text": "Lo."}
        corrected = client.patch(f"/v1/audio/voices/{mia['id']}", json={"ref_text": "La."}).json()
        assert corrected == zoe | {"id": corrected["id"], "ref_text": "La."}
        assert names(client)[4:] == ["Zoe"]
        assert client.get(f"{VOICES}/{mia['id']}").status_code == 404
        for name, fields, status, code in (
            ("zoe", {"name": "heart"}, 409, "name_taken"),
            ("zoe", {"name": 5}, 400, "invalid_field"),
            ("zoe", {"color": "red"}, 400, "unknown_field"),
            ("heart", {"name": "Eve"}, 403, "builtin_voice"),
            ("nobody", {"name": "Eve"}, 404, "voice_not_found"),
        ):
            answer = client.patch(f"{VOICES}/{name}", json=fields)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


BAD_UPLOADS: list[tuple[dict[str, Any], str, str | None, str]] = [
    ({"audio": b""}, "bad_audio", "audio", "empty (0 bytes)"),
    ({"audio": b"x" * 5000}, "bad_audio", "audio", "cannot be decoded as WAV, FLAC, MP3 or Ogg"),
    ({"audio": packed(tone(600)[::8], 3000)}, "bad_audio", "audio", "3000 Hz"),
    ({"audio": packed(0 * tone(600), format="FLAC")}, "bad_audio", "audio", "longer than 30 s"),
    ({"audio": packed(tone(2, channels=8))}, "bad_audio", "audio", "8 channels; send mono"),
    ({"audio": packed(tone(0.4))}, "bad_audio", "audio", "0.40 s; send 1 to 30 s"),
    ({"audio": packed(0 * tone(2))}, "bad_audio", "audio", "silent"),
    ({"audio": None}, "missing_field", "audio", "`audio` is required"),
    ({"name": ""}, "invalid_name", "name", "1 to 64 characters, not 0"),
    ({"name": "x" * 65}, "invalid_name", "name", "65"),
    ({"name": "../../etc"}, "invalid_name", "name", "'../../etc'"),
    ({"name": ".."}, "invalid_name", "name", "'..'"),
    ({"name": "a\x00b"}, "invalid_name", "name", "printable"),
    ({"name": "Default"}, "invalid_name", "name", "own choice"),
    ({"color": "red"}, "unknown_field", "color", "`color`; known are name, audio"),
    ({"ref_text": "x" * 4001}, "invalid_field", "ref_text", "4001"),
]


def test_bad_uploads_are_told_why_and_leave_a_good_voice_alone(
    running_server: RunningServer,
) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        good = upload(client, "Mia", packed(tone(2))).json()
        for change, code, param, message in BAD_UPLOADS:
            fields = {"name": "Mia", "audio": packed(tone(2, hz=300))} | change
            audio = fields.pop("audio")
            files = {"audio": ("a.wav", audio)} if audio is not None else {"x": ("", b"")}
            answer = client.post(VOICES, data=fields, files=files)
            error = answer.json()["error"]
            label = (str(change)[:50], error)
            if audio is not None:
                assert (error["code"], error["param"]) == (code, param), label
                assert message in error["message"], label
            assert answer.status_code == 400, label
        assert client.get(f"{VOICES}/mia").json()["id"] == good["id"]
        assert len(names(client)) == 5
        speech = client.post("/v1/audio/speech", json={"input": "Hi.", "voice": "Mia"})
        assert speech.status_code == 200


def test_uploads_that_are_no_forms_or_too_large(running_server: RunningServer) -> None:
    with httpx.Client(base_url=running_server.base_url) as client:
        json_body = client.post(VOICES, json={"name": "Mia"})
        assert json_body.json()["error"]["code"] == "invalid_content_type"
        nameless = client.post(VOICES, files={"other": ("a.wav", b"x")})
        assert nameless.json()["error"]["param"] == "other"
        without_audio = client.post(VOICES, files={"name": (None, "Mia")})
        assert without_audio.json()["error"]["message"].startswith("`audio` is required")
        no_boundary = client.post(
            VOICES, content=b"x", headers={"Content-Type": "multipart/form-data"}
        )
        assert no_boundary.status_code == 400
        assert "boundary" in no_boundary.json()["error"]["message"]
        for size in (10 << 20, 40 << 20):
            too_large = upload(client, "Mia", b"x" * (size + 1))
            assert (too_large.status_code, too_large.json()["error"]["code"]) == (413, "too_large")
        assert len(names(client)) == 4


def test_nothing_is_accepted_before_the_engine_can_encode(run_server: RunServer) -> None:
    server = run_server(FakeScript())
    server.services.draining = True
    with httpx.Client(base_url=server.base_url) as client:
        answer = upload(client, "Mia", packed(tone(2)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
