"""How long to look: `short` for every day, `long` by hand."""

from hypothesis import HealthCheck, settings

_ALWAYS = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}

settings.register_profile("short", max_examples=15, derandomize=True, **_ALWAYS)
settings.register_profile("long", max_examples=400, **_ALWAYS)
settings.load_profile("short")
