PORT ?= 8000
MINUTES ?= 300
OUT ?= build/voice
BIN := .venv/bin

.PHONY: demo test check soak voice

# Serve the shipped voice on loopback.
demo:
	@deploy/setup.sh server
	@$(BIN)/moss-realtime serve --port $(PORT)

# Every test, the browser's too; a file's tests share one process, for what they set up together.
test:
	@deploy/setup.sh dev
	@$(BIN)/python -m pytest -q -n auto --dist loadfile

# What to run before each commit.
check:
	@deploy/setup.sh dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n auto -m "not slow and not browser"

# What is below tests/soak: it takes long, or needs the training packages.
soak:
	@deploy/setup.sh train
	@$(BIN)/python -m pytest tests/soak

# A voice from nothing, in about MINUTES; run it again to go on with one that was stopped.
voice:
	@deploy/setup.sh train
	@$(BIN)/python -m engine.train.voice --minutes $(MINUTES) --out $(OUT)
