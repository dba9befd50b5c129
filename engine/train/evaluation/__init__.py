"""How well a checkpoint speaks: word errors, endings, likeness of the voice, speed."""
