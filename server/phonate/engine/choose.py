"""From settings to an engine: which one runs, and why."""

from __future__ import annotations

from phonate.engine.base import Engine
from phonate.settings import Settings


def create_engine(settings: Settings) -> Engine:
    """Raises SetupError when the engine that the settings ask for cannot run here."""
    if settings.engine == "scripted":
        from phonate.engine.scripted import ScriptedEngine

        return ScriptedEngine()
    from phonate.engine.builtin import BuiltinEngine

    return BuiltinEngine()
