PORT ?= 8000
BIN := .venv/bin

.PHONY: demo test check

# Serve the shipped voice on loopback.
demo:
	@deploy/setup.sh server
	@$(BIN)/moss-realtime serve --port $(PORT)

# Every test, the browser's too.
test:
	@deploy/setup.sh dev
	@$(BIN)/python -m pytest

# What to run before each commit.
check:
	@deploy/setup.sh dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n auto -m "not slow and not browser"
