"""Training of the language model: text and the sound so far in, the codes of the next frame out."""
