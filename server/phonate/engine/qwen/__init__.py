"""Qwen3-TTS through the `qt_` C ABI.

library (find, vet) -> model (what the files say) -> context -> checks (every value, before C sees
it) -> call -> engine, which is what the rest of phonate knows.
"""
