"""Which models to load, and how: profiles in YAML, and flags over them.

A profile is one model: where its checkpoint and codec are, its name in requests, and settings of
the engine. `tunings` are named sets of such settings that suit a kind of load. A flag or variable
that was set wins over the profile.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

import realtime
from engine.config import EngineConfig
from realtime.server.config import ConfigError, ServerConfig

PROFILES_DIR = Path(realtime.__file__).parents[1] / "deploy" / "profiles"
MAX_CHUNK_FRAMES = 15

_PLACES = ("model", "codec", "name", "variant")
_TUNABLE = (
    *("device", "dtype", "max_rows", "max_queued_rows", "max_grid_rows", "cache_blocks"),
    *("codec_slots", "encode_slots", "prefill_budget_grid_rows", "chunk_ramp_frames"),
    "codec_semantics",
)
_MAY_BE_ZERO = ("max_grid_rows", "max_queued_rows")
_SERVERS = ("device", "dtype", "max_rows", "max_queued_rows", "max_grid_rows")
"""Settings that the server has too, for all of its models."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model to load; `engine` are fields of `EngineConfig`. An empty name: as published."""

    model: str
    codec: str
    name: str
    variant: str
    engine: Mapping[str, Any]


def models_to_load(config: ServerConfig) -> tuple[ModelSettings, ...]:
    """What the settings ask for, in order. Raises `ConfigError`."""
    profiles = [read_profile(spec) for spec in config.profile]
    given = {
        key: _listed(config, field)
        for key, field in (
            *(("model", "model"), ("codec", "codec")),
            *(("name", "model_name"), ("variant", "variant")),
        )
    }
    count = len(profiles) or len(given["model"]) or 1
    for key, values in given.items():
        shared = key == "codec" and len(values) == 1
        if len(values) not in (0, count) and not shared:
            flag = "--model-name" if key == "name" else f"--{key}"
            raise ConfigError(f"{count} models and {len(values)} times {flag}; give one for each")
    return tuple(_settings(config, profiles[i] if profiles else {}, given, i) for i in range(count))


def _settings(
    config: ServerConfig,
    profile: Mapping[str, Any],
    given: Mapping[str, tuple[str, ...]],
    index: int,
) -> ModelSettings:
    defaults = {
        **{"model": config.model, "codec": config.codec},
        **{"name": config.model_name, "variant": config.variant},
    }
    places = {
        key: given[key][min(index, len(given[key]) - 1)]
        if given[key]
        else profile.get(key, defaults[key])
        for key in _PLACES
    }
    engine = {name: getattr(config, name) for name in _SERVERS}
    for name in _TUNABLE:
        if name in profile and not (name in _SERVERS and config.is_given(name)):
            engine[name] = profile[name]
    return ModelSettings(**places, engine=engine)


def _listed(config: ServerConfig, field: str) -> tuple[str, ...]:
    """The values of a setting that may have several, none if it was not set."""
    value: str = getattr(config, field)
    if not config.is_given(field):
        return ()
    if Path(value).is_dir():  # though there is a comma in its name
        return (value,)
    return tuple(part.strip() for part in value.split(","))


def read_profile(spec: str) -> dict[str, Any]:
    """Read `NAME` or `FILE.yaml`, either with `:TUNING`. Raises `ConfigError`.

    The result has the profile's keys, with those of the tuning over them.
    """
    path, tuning = _find(spec)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the profile {path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"the profile {path} must be `key: value` lines")
    tunings = values.pop("tunings", {})
    _check(str(path), values, (*_PLACES, *_TUNABLE, "tunings"))
    if not isinstance(tunings, dict):
        raise ConfigError(f"{path}: tunings must be NAME: {{key: value}}, not {tunings!r}")
    for name, settings in tunings.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: tuning {name} must be key: value, not {settings!r}")
        _check(f"{path}, tuning {name}", settings, _TUNABLE)
    if tuning and tuning not in tunings:
        known = ", ".join(tunings) or "none"
        raise ConfigError(f"the profile {path} has no tuning {tuning!r}; it has: {known}")
    chosen = values | (tunings[tuning] if tuning else {})
    return {key: tuple(v) if isinstance(v, list) else v for key, v in chosen.items()}


def profile_names() -> list[str]:
    """The profiles that come with the server."""
    return sorted(path.stem for path in PROFILES_DIR.glob("*.yaml"))


def _find(spec: str) -> tuple[Path, str]:
    name, _, tuning = spec.partition(":") if not Path(spec).is_file() else (spec, "", "")
    for path in (Path(name), PROFILES_DIR / f"{name}.yaml"):
        if path.suffix in (".yaml", ".yml") and path.is_file():
            return path, tuning
    near = _nearest(name, profile_names())
    known = ", ".join(profile_names()) or "none"
    raise ConfigError(f"there is no profile {name!r}{near}; there are: {known}, or give a file")


def _check(source: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    hints = get_type_hints(EngineConfig)
    for key, value in values.items():
        if key not in known:
            near = _nearest(str(key), known)
            raise ConfigError(f"{source}: unknown key {key!r}{near}; known are {', '.join(known)}")
        wanted = _unfit(key, value, hints.get(key, str))
        if wanted:
            raise ConfigError(f"{source}: {key} must be {wanted}, not {value!r}")


def _unfit(key: str, value: Any, kind: Any) -> str:
    """What the value of a key should be; empty where it is."""
    if get_origin(kind) is Literal:
        return "" if value in get_args(kind) else f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        fits = isinstance(value, list) and value and all(_is_count(item, 1) for item in value)
        fits = fits and max(value) <= MAX_CHUNK_FRAMES
        return "" if fits else f"a list of whole numbers, each 1 to {MAX_CHUNK_FRAMES}"
    if kind is int:
        least = 0 if key in _MAY_BE_ZERO else 1
        return "" if _is_count(value, least) else f"a whole number, at least {least}"
    return "" if isinstance(value, str) and value.strip() else "text"


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
