"""The corpus: our own sentences, spoken by a public teacher as several speakers."""
