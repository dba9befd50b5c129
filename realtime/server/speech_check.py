"""A request for speech against what its model can do: every mistake names the field."""

from __future__ import annotations

import re

from engine.api import ModelInfo
from engine.models.capabilities import Capabilities, Field
from engine.text.dialogue import speakers
from realtime.server.speech_request import SAMPLE_RATES_HZ, SpeechBody, refuse, shown

_SPEAKER = re.compile(r"S[1-9]\d?")


def check_for_model(body: SpeechBody, model: Capabilities) -> None:
    """Raises `ApiError` 400 for the first thing that the model cannot do."""
    _check_text(body, model)
    for param, field, value in _given(body):
        if field not in model.takes:
            raise refuse(param, "unsupported", _not_taken(param, field, value, model))
    for field in sorted(model.requires):
        if not any(given == field and value for _, given, value in _given(body)):
            hint = model.hints.get(field, "it cannot speak without")
            raise refuse(field, "missing_field", f"{model.title} requires `{field}`: {hint}")
    _check_values(body, model)
    if model.max_speakers > 1:
        _check_speakers(body, model)


def _check_text(body: SpeechBody, model: Capabilities) -> None:
    if body.ambient_sound is not None and body.input and body.input.strip():
        message = "`ambient_sound` is another way to write this model's `input`; send one"
        if model.speaks != "ambient_sound":
            message = _not_taken("ambient_sound", "ambient_sound", body.ambient_sound, model)
        raise refuse("ambient_sound", "conflict", message)
    text = body.input if body.input and body.input.strip() else body.ambient_sound or ""
    param = "ambient_sound" if text is body.ambient_sound else "input"
    if len(text) > model.max_input_chars:
        message = f"`{param}` has {len(text)} characters; at most {model.max_input_chars} are taken"
        raise refuse(param, "string_above_max_length", message)


def _given(body: SpeechBody) -> list[tuple[str, Field, object]]:
    """What the request says beside its text: (name in the request, field of models, value)."""
    inline = body.inline_reference
    given: list[tuple[str, Field, object]] = [
        ("voice" if body.speaker is None else "speaker", "ref_audio", body.voice_name),
        (inline[1] if inline else "ref_audio", "ref_audio", inline and inline[0]),
        ("references" if body.references else "ref_text", "ref_text", body.transcript or None),
        ("ref_audio_2", "speakers", body.ref_audio_2),
        ("speakers", "speakers", body.speakers and [part.id for part in body.speakers]),
        ("language", "language", body.language),
        ("instructions", "instructions", (body.instructions or "").strip() or None),
        ("ambient_sound", "ambient_sound", body.ambient_sound),
        ("sound_event", "sound_event", body.sound_event),
        ("quality", "quality", body.quality),
        ("duration_seconds", "duration_seconds", body.duration_seconds),
        ("n_vq", "n_vq", body.n_vq),
        ("history", "history", body.history and [turn.role for turn in body.history]),
    ]
    return [(param, field, value) for param, field, value in given if value is not None]


def _not_taken(param: str, field: Field, value: object, model: Capabilities) -> str:
    why = model.hints.get(field, "it has no use for it")
    text = shown(value)
    text = text if len(text) <= 40 else text[:40] + "..."
    takes = ", ".join(["input", *sorted(model.takes)])
    return (
        f"`{param}` {text} cannot be used by {model.title}: {why}; leave it out. It takes {takes}"
    )


def _check_values(body: SpeechBody, model: Capabilities) -> None:
    if body.language is not None:
        try:
            model.language(body.language)
        except ValueError as error:
            raise refuse("language", "invalid_field", f"`language` {error}") from None
    seconds = body.duration_seconds
    if seconds is not None and not 0 < seconds <= model.max_audio_s:
        message = (
            f"`duration_seconds` is {seconds:g}; {model.title} makes more than 0 and at most "
            f"{model.max_audio_s:g} seconds"
        )
        raise refuse("duration_seconds", "invalid_field", message)
    if body.text_normalizer not in model.normalizers:
        message = (
            f"`text_normalizer` {body.text_normalizer!r} is no part of {model.title}; it has: "
            f"{', '.join(model.normalizers)}"
        )
        raise refuse("text_normalizer", "unsupported", message)
    if body.transcript and not body.clips():
        message = "`ref_text` says what is said in `ref_audio` or a `voice`; there is neither"
        raise refuse("ref_text", "missing_reference", message)


def check_for_info(body: SpeechBody, model: ModelInfo) -> None:
    """Raises `ApiError` 400 for numbers that the loaded model does not have."""
    rates = sorted({*SAMPLE_RATES_HZ, model.rate_hz})
    if body.sample_rate is not None and body.sample_rate not in rates:
        message = (
            f"`sample_rate` {body.sample_rate} is not one of {', '.join(map(str, rates))}; "
            f"the model speaks at {model.rate_hz}"
        )
        raise refuse("sample_rate", "unsupported_rate", message)
    if body.n_vq is not None and body.n_vq > model.n_vq:
        message = f"`n_vq` is {body.n_vq}; the model has 1 to {model.n_vq} codebooks"
        raise refuse("n_vq", "invalid_field", message)
    if body.text_draws and model.text_sampling_defaults is None:
        param = f"text_{next(iter(body.text_draws))}"
        message = f"`{param}` is for models that draw text; {model.name} does not: leave it out"
        raise refuse(param, "unsupported", message)


def _check_speakers(body: SpeechBody, model: Capabilities) -> None:
    most = model.max_speakers
    tags = speakers(body.input or "") or {1}
    if wrong := sorted(tag for tag in tags if not 1 <= tag <= most):
        message = f"`input` has [S{wrong[0]}]; {model.title} knows speakers [S1] to [S{most}]"
        raise refuse("input", "too_many_speakers", message)
    described = _described_speakers(body, most)
    for field, number in described.items():
        if number not in tags:
            message = f"`{field}` is the voice of S{number}, but `input` has no [S{number}]"
            raise refuse(field.partition("[")[0], "superfluous_reference", message)
    clips = body.clips()
    if clips and (silent := sorted(tags - set(described.values()))):
        message = (
            f"[S{silent[0]}] speaks in `input` but has no reference; give one in `speakers`, or "
            f'{{"id": "S{silent[0]}", "voice": "default"}} to leave the voice to the model'
        )
        raise refuse("speakers", "missing_reference", message)


def _described_speakers(body: SpeechBody, most: int) -> dict[str, int]:
    """The numbers of the speakers that the request describes, by the fields that do."""
    found: dict[str, int] = {}
    if body.voice_name is not None or body.inline_reference:
        found["voice" if body.inline_reference is None else body.inline_reference[1]] = 1
    if body.ref_audio_2 is not None:
        found["ref_audio_2"] = 2
    for place, part in enumerate(body.speakers or ()):
        field = f"speakers[{place}]"
        number = int(part.id[1:]) if _SPEAKER.fullmatch(part.id) else 0
        if not 1 <= number <= most:
            message = f"`{field}`: id is S1 to S{most}, not {shown(part.id)}"
            code = "too_many_speakers" if number else "invalid_field"
            raise refuse("speakers", code, message)
        if number in found.values():
            raise refuse("speakers", "conflict", f"`{field}`: S{number} is there twice")
        if (part.voice is None) == (part.ref_audio is None):
            has = "has no reference" if part.voice is None else "has two references"
            message = f'`{field}`: S{number} {has}; give `ref_audio` or `voice` ("default": any)'
            code = "missing_reference" if part.voice is None else "conflict"
            raise refuse("speakers", code, message)
        found[field] = number
    return found
