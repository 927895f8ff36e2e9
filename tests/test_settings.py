import pytest

from phonate.errors import SetupError
from phonate.settings import Settings, flag_name, group_of, load


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path):
    file = tmp_path / "phonate.toml"
    file.write_text('port = 1111\nhost = "::1"\nmax-batch = 2\n')
    environ = {"PHONATE_PORT": "2222", "PHONATE_HOST": "127.0.0.2"}
    loaded = load({"port": "3333", "host": None}, environ, file)
    assert loaded.settings.port == 3333
    assert loaded.settings.host == "127.0.0.2"
    assert loaded.settings.max_batch == 2
    assert loaded.settings.max_queued_requests == 8
    assert {k: loaded.origins[k] for k in ("port", "host", "max_batch", "log_level")} == {
        "port": "flag",
        "host": "environment",
        "max_batch": "file",
        "log_level": "default",
    }


def test_lists_come_from_repeated_flags_or_a_separated_variable():
    assert load({"alias": ["a", "b"]}, {}).settings.alias == ["a", "b"]
    assert load({}, {"PHONATE_ALIAS": "a, b\nc"}).settings.alias == ["a", "b", "c"]
    assert load({"alias": []}, {"PHONATE_ALIAS": "a"}).settings.alias == ["a"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1024", 1024), ("32MiB", 32 * 2**20), ("1.5m", 1572864), ("2 GB", 2**31)],
)
def test_sizes_may_have_units(written, meant):
    assert load({"max_request_bytes": written}, {}).settings.max_request_bytes == meant


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        ({"port": "70000"}, {}, ["--port", "70000", "0 to 65535"]),
        ({"port": "eighty"}, {}, ["--port", "eighty"]),
        ({"max_batch": "0"}, {}, ["--max-batch", "1 to 64"]),
        ({}, {"PHONATE_LOG_LEVEL": "loud"}, ["PHONATE_LOG_LEVEL", "loud", "debug"]),
        ({"startup_buffer_ms": "nan"}, {}, ["--startup-buffer-ms"]),
        ({"synthesis_timeout": "inf"}, {}, ["--synthesis-timeout"]),
    ],
)
def test_a_wrong_value_names_where_it_stands_and_what_is_allowed(flags, environ, words):
    with pytest.raises(SetupError) as caught:
        load(flags, environ)
    for word in words:
        assert word in caught.value.message


def test_unknown_keys_of_the_file_are_errors(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("prot = 1")
    with pytest.raises(SetupError, match="prot"):
        load({}, {}, file)


def test_a_file_that_cannot_be_read_or_parsed_says_so(tmp_path):
    with pytest.raises(SetupError, match="cannot be read"):
        load({}, {}, tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 1")
    with pytest.raises(SetupError, match="not valid TOML"):
        load({}, {}, broken)


def test_every_option_has_a_meaning_and_a_place():
    for name, info in Settings.model_fields.items():
        assert info.description, name
        assert group_of(info), name
        assert flag_name(name).startswith("--")


def test_settings_do_not_change_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]
