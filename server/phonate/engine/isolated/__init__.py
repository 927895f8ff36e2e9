"""An engine in a process of its own (`--isolate-engine`), because a native library can abort.

wire (frames over a pipe) and values (what is in them) -> child (the process's main) and, on this
side, process (one such process and the calls in it) -> supervisor (keeps one alive) -> engine,
which is an `Engine` like any other.
"""
