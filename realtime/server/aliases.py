"""OpenAI's names for models and voices, so that code written for its API runs unchanged."""

from __future__ import annotations

from realtime.server.config import ConfigError, ServerConfig
from realtime.server.served_models import ServedModel, ServedModels
from realtime.server.voice import Voice
from realtime.server.voice_store import VoiceStore, voice_not_found

OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)


class Aliases:
    """Resolves what a request calls a model or a voice."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises `ConfigError` when a voice alias is not `name=voice`."""
        self._models = frozenset(config.model_aliases)
        self._voices: dict[str, str] = {}
        for pair in config.voice_aliases:
            alias, equals, voice = pair.partition("=")
            if not (alias.strip() and equals and voice.strip()):
                raise ConfigError(f"a voice alias is written name=voice, not {pair!r}")
            self._voices[alias.strip().casefold()] = voice.strip()

    def model(self, name: str | None, models: ServedModels) -> ServedModel:
        """The model called `name`; without a name, or by an alias, the first.

        Raises `ApiError` 404.
        """
        if name is None or (name in self._models and not models.has(name)):
            return models.first
        return models.find(name)

    def voice(self, name: str | None, store: VoiceStore) -> Voice | None:
        """The voice called `name`: a voice of that name or id, else what the alias stands for.

        None where no name was given and the server has no default. OpenAI's names that are not
        configured share the voices that came with the model. Raises `ApiError` 400.
        """
        if name is None:
            return store.default()
        alias = name.strip().casefold()
        if found := store.get(name) or store.get(self._voices.get(alias, "")):
            return found
        builtin = [voice for voice in store.all() if voice.builtin]
        if alias in OPENAI_VOICES and alias not in self._voices and builtin:
            return builtin[OPENAI_VOICES.index(alias) % len(builtin)]
        raise voice_not_found(name, store.names(), 400)
