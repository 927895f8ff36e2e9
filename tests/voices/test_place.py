from __future__ import annotations

from pathlib import Path

import pytest

from phonate.errors import SetupError
from phonate.settings import Settings, load
from phonate.voices.place import Bucket, below, place_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("s3://voices", Bucket("voices")),
        ("s3://voices/", Bucket("voices")),
        ("S3://my.voices-1/team//a/", Bucket("my.voices-1", "team/a")),
    ],
)
def test_a_bucket_is_written_as_an_address(written: str, meant: Bucket) -> None:
    assert place_of(written) == meant
    assert place_of(str(meant)) == meant


@pytest.mark.parametrize("written", ["/var/voices", "voices", r"C:\voices", "s3:/x", "./s3://x"])
def test_everything_else_is_a_folder(written: str) -> None:
    assert place_of(written) == Path(written)
    assert place_of(Path(written)) == Path(written)


@pytest.mark.parametrize(
    "written", ["s3://", "s3:///x", "s3://UP", "s3://a", "s3://voices/../x", "s3://voices/a b"]
)
def test_an_impossible_address_is_refused_with_the_two_ways_to_write_it(written: str) -> None:
    with pytest.raises(SetupError, match=r"--voice-dir .*Allowed: a folder, or s3://bucket/prefix"):
        load({"voice_dir": written}, {})


def test_the_setting_goes_to_the_engines_process_and_back() -> None:
    for written in ("s3://voices/team", "/var/voices"):
        effective = load({}, {"PHONATE_VOICE_DIR": written}).settings
        again = Settings(**effective.model_dump(mode="json"))
        assert again.voice_dir == effective.voice_dir == place_of(written)


def test_below() -> None:
    assert below(Path("/v"), "consents") == Path("/v/consents")
    assert below(Bucket("v"), "consents") == Bucket("v", "consents")
    assert below(Bucket("v", "a"), "consents") == Bucket("v", "a/consents")
