import pytest
from support import running

from phonate.engine.scripted import ScriptedEngine


@pytest.fixture
def scripted():
    """A running server around the scripted engine with its default script."""
    with running(ScriptedEngine()) as server:
        yield server
