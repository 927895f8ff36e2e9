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


@pytest.mark.parametrize(
    ("written", "mask"),
    [("0x0f", 15), ("15", 15), ("0-3", 15), ("0-3, 6", 79), ("0,2", 5), ("63-63", 1 << 63), (7, 7)],
)
def test_cpus_are_a_mask_or_a_list(written, mask):
    assert load({"cpu_affinity": written}, {}).settings.cpu_affinity == mask


@pytest.mark.parametrize("written", ["0-64", "3-1", "-1", "a", "0,", "0x1ffffffffffffffff", ""])
def test_wrong_cpus_are_refused_with_the_two_ways_to_write_them(written):
    with pytest.raises(SetupError, match=r"--cpu-affinity.*0x0f.*0-3,6"):
        load({"cpu_affinity": written}, {})


def test_names_that_people_bring_along_mean_the_option(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('library-path = "x.so"\n')
    loaded = load({}, {"PHONATE_MODEL_ID": "owner/model", "PHONATE_MAX_ACTIVE_REQUESTS": "3"}, file)
    assert loaded.settings.model == "owner/model"
    assert loaded.settings.max_batch == 3
    assert loaded.settings.library == "x.so"
    assert loaded.origins["model"] == "environment"
    file.write_text('library-path = "x.so"\nlibrary = "y.so"\n')
    with pytest.raises(SetupError, match="a second time"):
        load({}, {}, file)


def test_the_brought_names_are_flags_too(capsys):
    from typer.testing import CliRunner

    from phonate.cli import cli

    shown = CliRunner().invoke(cli, ["config", "--model-id", "a/b", "--library-path", "y.so"])
    assert "model = 'a/b'  # flag" in shown.output
    assert "library = 'y.so'  # flag" in shown.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [({"uds_mode": "888"}, "660"), ({"root_path": "speech"}, "begins with /"),
     ({"root_path": "/speech/"}, "does not end"), ({"clone_mode": "icl"}, "speaker_only")],
)  # fmt: skip
def test_what_is_no_range_is_said_in_words(flags, words):
    with pytest.raises(SetupError, match=words):
        load(flags, {})
