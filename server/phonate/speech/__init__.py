"""The journey of one utterance, from text to audio. No I/O library is imported here."""
