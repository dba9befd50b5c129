"""API keys and the tokens they sign, without a server."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pytest

from realtime.server.client_tokens import (
    MAX_TOKEN_CHARS,
    ClientToken,
    TokenError,
    new_token_id,
    sign,
    verify,
)
from realtime.server.config import ConfigError, ServerConfig, load_config
from realtime.server.keys import ApiKeys, read_api_keys

KEY, OTHER = "sk-0123456789abcdef", "sk-fedcba9876543210"
NOW_S = 1_700_000_000


def keys(*entries: str) -> ApiKeys:
    return read_api_keys(ServerConfig(api_keys=entries))


def token_of(**fields: object) -> ClientToken:
    token = ClientToken(id=new_token_id(), key_name="app", expires_at=NOW_S + 60)
    return dataclasses.replace(token, **fields)


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n  phone:{OTHER}  \n")
    environ = {"MOSS_API_KEYS": f"app:{KEY}, {KEY[::-1]}", "MOSS_API_KEYS_FILE": str(file)}
    config = load_config({}, environ)
    found = read_api_keys(config)
    app, phone, unnamed = found.find(KEY), found.find(OTHER), found.find(KEY[::-1])
    assert app is not None
    assert phone is not None
    assert unnamed is not None
    assert (app.name, phone.name, unnamed.name[:4]) == ("app", "phone", "key-")
    assert found.named("phone") is phone
    for wrong in ("", KEY[:-1], KEY + "x", KEY.upper(), f"app:{KEY}", "\udc80", "é" * 20):
        assert found.find(wrong) is None
    assert not read_api_keys(ServerConfig())


def test_a_key_is_neither_kept_nor_shown() -> None:
    config = ServerConfig(api_keys=(KEY,))
    assert KEY.encode() not in pickle.dumps(read_api_keys(config))
    assert KEY not in repr(config)
    assert KEY not in str(config.shown())
    assert "api_keys_file" in config.shown()


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (("short",), r"key 1 of MOSS_API_KEYS \(5 characters\) is no API key"),
        ((KEY, "with space in its middle"), "key 2 of MOSS_API_KEYS"),
        (("a b:" + KEY,), "write NAME:KEY"),
        (("a:" + KEY, "a:" + OTHER), "same name"),
        (("a:" + KEY, "b:" + KEY), "same digest"),
    ],
)
def test_a_bad_key_is_told_without_showing_it(entries: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        keys(*entries)
    assert not any(
        entry.partition(":")[2] in str(caught.value) for entry in entries if ":" in entry
    )
    assert "short" not in str(caught.value)


def test_a_bad_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_api_keys(ServerConfig(api_keys_file=str(tmp_path / "none")))
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="holds no key"):
        read_api_keys(ServerConfig(api_keys_file=str(empty)))
    empty.write_text(f"{KEY}\nx\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*/empty \(1 characters\)"):
        read_api_keys(ServerConfig(api_keys_file=str(empty)))


def test_an_open_address_needs_keys_or_insecure() -> None:
    assert ServerConfig(host="0.0.0.0", api_keys=(KEY,)).has_keys
    with pytest.raises(ConfigError, match="--api-keys-file"):
        ServerConfig(host="0.0.0.0")


def test_a_token_says_what_it_was_given_on_every_server_with_its_key() -> None:
    token = token_of(origin="https://a.example", max_sessions=2, session={"voice": "Zoë"})
    key = keys(f"app:{KEY}").named("app")
    assert key is not None
    text = sign(token, key)
    assert verify(text, keys(f"phone:{OTHER}", f"app:{KEY}"), NOW_S) == token
    assert text.isascii()
    assert not set(text) & set(' =,;/"')  # travels in a subprotocol and in a query


def test_a_token_ends_with_its_time_and_with_its_key() -> None:
    ours = keys(f"app:{KEY}")
    text = sign(token_of(), ours.find(KEY))
    verify(text, ours, NOW_S + 59.9)
    with pytest.raises(TokenError, match="expired") as caught:
        verify(text, ours, NOW_S + 60)
    assert caught.value.code == "token_expired"
    for others in (keys(f"app:{OTHER}"), keys(f"phone:{KEY}")):
        with pytest.raises(TokenError, match="not signed") as caught:
            verify(text, others, NOW_S)
        assert caught.value.code == "invalid_token"


def test_no_changed_character_of_a_token_passes() -> None:
    ours = keys(f"app:{KEY}")
    text = sign(token_of(), ours.find(KEY))
    last = len(text) - 1  # its lowest bits are padding
    for at in range(len("ct1."), last):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(TokenError):
            verify(changed, ours, NOW_S)
    for rest in ("", "x", ".", "e30.e30", "W" * 400 + ".AA", "é.é"):
        rubbish = f"ct1.{rest}"
        with pytest.raises(TokenError, match=r"cannot be read|not signed"):
            verify(rubbish, ours, NOW_S)


def test_a_token_does_not_grow_beyond_what_a_header_takes() -> None:
    key = keys(f"app:{KEY}").find(KEY)
    with pytest.raises(ValueError, match=str(MAX_TOKEN_CHARS)):
        sign(token_of(session={"metadata": json.dumps("x" * MAX_TOKEN_CHARS)}), key)
