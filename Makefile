PORT ?= 8000
BIN := .venv/bin

.PHONY: demo test check soak

# Serve the shipped voice on loopback.
demo:
	@deploy/setup.sh server
	@$(BIN)/moss-realtime serve --port $(PORT)

# Every test, the browser's too.
test:
	@deploy/setup.sh dev
	@$(BIN)/python -m pytest

# What takes too long for every change: thousands of sessions.
soak:
	@deploy/setup.sh dev
	@$(BIN)/python -m pytest -m soak

# What to run before each commit.
check:
	@deploy/setup.sh dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n auto -m "not slow and not browser"

# What needs the training packages: the teacher, the recogniser, a voice from nothing.
soak:
	@deploy/setup.sh train
	@$(BIN)/python -m pytest tests/soak
