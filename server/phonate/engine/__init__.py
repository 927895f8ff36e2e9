"""What makes the sound: one interface (base) and the engines behind it."""
