"""Settings come from defaults, environment and flags; nothing unknown or unsafe is let through."""

import argparse

import pytest

from realtime.server.config import ConfigError, ServerConfig, add_arguments, load_config


def parsed(*flags: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return vars(parser.parse_args(flags))


def test_a_flag_wins_over_the_environment_and_that_over_the_default():
    environ = {"MOSS_PORT": "9000", "MOSS_MAX_ROWS": "4", "PATH": "/bin"}
    config = load_config(parsed("--port", "9001"), environ)
    assert (config.port, config.max_rows, config.host) == (9001, 4, "127.0.0.1")


def test_every_kind_of_field_is_read_from_text():
    environ = {
        "MOSS_FAKE": "true",
        "MOSS_CORS_ORIGINS": "https://a.example, https://b.example",
        "MOSS_SLOW_CONSUMER_S": "0.5",
        "MOSS_DTYPE": "bfloat16",
    }
    config = load_config(parsed("--no-warm-up"), environ)
    assert config.fake is True
    assert config.warm_up is False
    assert config.cors_origins == ("https://a.example", "https://b.example")
    assert config.slow_consumer_s == 0.5
    assert config.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"MOSS_PROT": "1"}, "unknown setting MOSS_PROT; known are .*MOSS_PORT"),
        ({"MOSS_GIVEN": "port"}, "unknown setting MOSS_GIVEN"),
        ({"MOSS_PORT": "http"}, "MOSS_PORT must be a number, not 'http'"),
        ({"MOSS_FAKE": "maybe"}, "MOSS_FAKE must be true or false, not 'maybe'"),
        ({"MOSS_DTYPE": "int8"}, "MOSS_DTYPE must be one of auto, float32, .* not 'int8'"),
        ({"MOSS_HOST": "0.0.0.0"}, "--host 0.0.0.0 can be reached by others .* --insecure"),
    ],
)
def test_a_bad_setting_is_named(environ: dict[str, str], complaint: str):
    with pytest.raises(ConfigError, match=complaint):
        load_config({}, environ)


def test_an_unknown_flag_is_an_error():
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parsed("--prot", "1")


def test_an_open_address_needs_insecure():
    assert ServerConfig(host="0.0.0.0", insecure=True).host == "0.0.0.0"
