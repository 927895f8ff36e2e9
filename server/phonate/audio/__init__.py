"""Small objects that turn audio into audio: feed pieces in, get pieces out, finish. No I/O."""
