"""Voices people bring: the value, and the store that keeps it for good."""
