"""Model files: what a name resolves to, downloads, GGUF headers, conversion of official
checkpoints, and random ones of the right architecture to test and measure with."""
