"""Fine-tuning of any checkpoint in the released format on a user's own recordings."""
