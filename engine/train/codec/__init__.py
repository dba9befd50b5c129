"""Training of the codec: sound in, the same sound out, through codes whose first ones say what."""
