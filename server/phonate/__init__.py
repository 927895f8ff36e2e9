"""phonate: a speech server. Text in, voice out."""

__version__ = "0.1.0"
