"""HTTP and WebSocket edges: they check what comes in and shape what goes out, and nothing else."""
