"""A native engine in a process of its own: the tests of the server and of cloning, once more."""

from __future__ import annotations

import pytest
from support import running
from test_qwen_server import (  # noqa: F401
    test_a_seed_replays_over_http,
    test_it_speaks_as_many_frames_as_it_is_given,
    test_sampling_reaches_the_model,
    test_what_a_base_model_cannot_do_is_said,
)
from test_qwen_voices import (  # noqa: F401
    test_a_one_off_reference_equals_the_stored_voice,
    test_a_voice_is_cloned_kept_and_spoken_with_after_a_restart,
    test_by_latents_and_by_embedding,
    test_deleting_a_voice_while_it_speaks_does_not_cut_it,
)

from phonate.engine.choose import create_engine
from phonate.settings import load


@pytest.fixture(scope="module")
def isolated_options(library, model_files):
    files = model_files("base")
    return {
        "isolate_engine": True,
        "talker": str(files.talker),
        "codec": str(files.codec),
        "library": str(library.path),
        "synthesis_timeout": "600",
    }


@pytest.fixture(scope="module")
def server(isolated_options):
    with running(create_engine(load(isolated_options, {}).settings), **isolated_options) as server:
        yield server


@pytest.fixture
def start(isolated_options, tmp_path):
    options = {**isolated_options, "voice_dir": str(tmp_path / "voices")}
    return lambda: running(create_engine(load(options, {}).settings), **options)
