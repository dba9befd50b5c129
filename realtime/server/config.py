"""Every setting of the server, with its unit, default and meaning; flags and environment from it.

Field `max_sessions` is the flag `--max-sessions` and the environment variable `MOSS_MAX_SESSIONS`;
a flag wins. A bool is a bare flag, and `1`, `true`, `0` or `false` in the environment; a tuple is a
comma-separated list, and some flags may be repeated instead. An unknown flag or `MOSS_` variable
is an error. A secret has no flag, which `ps` would show to every user of the machine, and is not
logged.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR, DEFAULT_VOICES_DIR

ENV_PREFIX = "MOSS_"
CALLER_KEY = "MOSS_API_KEY"  # no setting: the key that a caller of this machine sends
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class ConfigError(ValueError):
    """A setting is unknown or has no sensible value."""


def _setting(default: Any, meaning: str, *, secret: bool = False, many: bool = False) -> Any:
    """`many`: the flag may be repeated; its values are joined with commas."""
    metadata = {"help": meaning, "secret": secret, "many": many}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerConfig:
    """Plain values only: logged at start as they are, secrets left out."""

    host: str = _setting("127.0.0.1", "address to listen on")
    port: int = _setting(8000, "port to listen on; 0 takes a free one")
    insecure: bool = _setting(False, "serve without keys on an address others can reach")
    api_keys: tuple[str, ...] = _setting(
        (), "keys callers need, each NAME:KEY or KEY; only as MOSS_API_KEYS", secret=True
    )
    api_keys_file: str = _setting(
        "", "file of the keys callers need, NAME:KEY or KEY a line (or set MOSS_API_KEYS)"
    )
    max_sessions_per_key: int = _setting(0, "sessions one key may have open; 0: no limit")
    max_requests_per_key: int = _setting(0, "HTTP requests one key may have running; 0: no limit")
    cors_origins: tuple[str, ...] = _setting((), "web origins, beside our own, that may call us")
    allowed_hosts: tuple[str, ...] = _setting(
        (), "names we answer to in `Host`; empty: loopback names, any with keys or --insecure"
    )
    profile: tuple[str, ...] = _setting(
        (),
        "settings of a model: one of deploy/profiles or a file, with :TUNING one of its tunings; "
        "repeat it for several models",
        many=True,
    )
    model: str = _setting(
        str(DEFAULT_MODEL_DIR),
        "directory or hub id of the language model; repeat it for several models",
        many=True,
    )
    codec: str = _setting(
        str(DEFAULT_CODEC_DIR),
        "directory or hub id of its audio codec; of several models one for all or one for each",
        many=True,
    )
    model_name: str = _setting(
        "", "name of the model in requests; empty: as it is published", many=True
    )
    variant: str = _setting(
        "auto", "which model of the family it is, where its files do not say", many=True
    )
    model_aliases: tuple[str, ...] = _setting(
        ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
        "other names REST requests may call the first model",
    )
    voices: str = _setting(str(DEFAULT_VOICES_DIR), "directory of voices that come with the model")
    voice_aliases: tuple[str, ...] = _setting(
        (), "other names of voices in REST requests, as alloy=bright,nova=heart"
    )
    data_dir: str = _setting(
        str(Path.home() / ".local" / "share" / "moss-realtime"), "where uploaded voices are kept"
    )
    device: str = _setting("auto", "`auto` (CUDA where there is one), `cpu`, `cuda`, `cuda:1`...")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _setting(
        "auto", "type of the language model's weights"
    )
    threads: int = _setting(0, "CPU threads of the engine; 0: all cores but one")
    max_rows: int = _setting(16, "responses spoken at the same time")
    max_grid_rows: int = _setting(
        0,
        "longest context of the model, in grid rows (12.5 are a second of sound); "
        "0: what suits the model",
    )
    max_queued_rows: int = _setting(64, "responses that may wait for a place")
    deterministic: bool = _setting(False, "byte-identical sound whatever else runs; slower")
    warm_up: bool = _setting(True, "run every shape before accepting requests")
    fake: bool = _setting(False, "no model: a test engine that sweeps a tone instead of speaking")
    max_sessions: int = _setting(64, "WebSocket sessions at the same time")
    resume_ttl_s: int = _setting(
        120, "seconds that a session waits for its client after a lost connection; 0: not at all"
    )
    stall_flush_ms: int = _setting(
        800, "speak what is there when text stalls this long; 0 waits for ever"
    )
    allow_remote_ref_audio: bool = _setting(
        False, "fetch reference audio from http(s) URLs in requests, of public addresses"
    )
    ref_audio_private_hosts: tuple[str, ...] = _setting(
        (), "hosts to fetch it from though their addresses are private"
    )
    slow_consumer_s: float = _setting(15.0, "close a socket that takes nothing for this long")
    max_queued_bytes: int = _setting(8 << 20, "close a socket with more sound waiting than this")
    stuck_after_s: float = _setting(
        10.0, "not ready when the engine made no progress this long; restarted after twice as long"
    )
    restart_wait_s: float = _setting(
        30.0, "seconds that responses under way wait for an engine that restarts"
    )
    drain_s: float = _setting(10.0, "time for responses to finish at shutdown")
    audio_threads: int = _setting(2, "threads for Opus, resampling and file formats")
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "what to log")
    log_text: bool = _setting(False, "log what is to be said too, at log level debug")
    given: frozenset[str] = _setting(
        frozenset(), "names of the settings that were set", secret=True
    )

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a combination that must not run."""
        if self.host not in LOOPBACK_HOSTS and not self.insecure and not self.has_keys:
            raise ConfigError(
                f"--host {self.host} can be reached by others and no keys are set; set "
                "--api-keys-file, listen on 127.0.0.1, or say --insecure if the network is trusted"
            )

    def is_given(self, name: str) -> bool:
        """Whether a setting was set, be it to its default, and so wins over a profile's."""
        return name in self.given or bool(getattr(self, name) != getattr(_DEFAULTS, name))

    @property
    def has_keys(self) -> bool:
        """Whether callers need a key."""
        return bool(self.api_keys or self.api_keys_file)

    def shown(self) -> dict[str, Any]:
        """Every setting but the secret ones."""
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if not f.metadata["secret"]}


_DEFAULTS = ServerConfig()


def add_arguments(parser: argparse.ArgumentParser, only: Sequence[str] | None = None) -> None:
    """Add one flag a field (or only those named)."""
    hints = get_type_hints(ServerConfig)
    for field in dataclasses.fields(ServerConfig):
        if field.metadata["secret"] or (only is not None and field.name not in only):
            continue
        flag, meaning = f"--{field.name.replace('_', '-')}", field.metadata["help"]
        if hints[field.name] is bool:
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=None, help=meaning)
        else:
            times, metavar = "append" if field.metadata["many"] else "store", field.name.upper()
            shown = f"{meaning} ({field.default!r})"
            parser.add_argument(flag, action=times, metavar=metavar, help=shown)


def load_config(flags: Mapping[str, Any], environ: Mapping[str, str]) -> ServerConfig:
    """Merge flags (None: not given) over `MOSS_` variables over defaults; raises `ConfigError`."""
    hints = get_type_hints(ServerConfig)
    del hints["given"]  # is what this finds out
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if variable.startswith(ENV_PREFIX) and variable != CALLER_KEY:
            name = variable.removeprefix(ENV_PREFIX).lower()
            if name not in hints:
                known = ", ".join(sorted(ENV_PREFIX + name.upper() for name in hints))
                raise ConfigError(f"unknown setting {variable}; known are {known}")
            values[name] = _parse(variable, text, hints[name])
    for name, value in flags.items():
        if name in hints and value is not None:
            flag = f"--{name.replace('_', '-')}"
            value = ",".join(value) if isinstance(value, list) else value
            values[name] = _parse(flag, value, hints[name]) if isinstance(value, str) else value
    return ServerConfig(**values, given=frozenset(values))


def _parse(source: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ConfigError(f"{source} must be one of {', '.join(get_args(kind))}, not {text!r}")
        return text
    if kind is bool:
        choices = {"1": True, "true": True, "0": False, "false": False}
        if text.lower() not in choices:
            raise ConfigError(f"{source} must be true or false, not {text!r}")
        return choices[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{source} must be a number, not {text!r}") from None
