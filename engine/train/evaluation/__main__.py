"""`moss-realtime evaluate`: how well a checkpoint, a server or a codec speaks."""

from __future__ import annotations

import sys

from engine.train.packages import MissingPackages, require_packages


def main() -> int:
    """Run the evaluation, or say which packages it lacks. Returns the exit status."""
    try:
        require_packages()
    except MissingPackages as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 1
    from engine.train.evaluation.command import main as evaluate

    return evaluate()


if __name__ == "__main__":
    sys.exit(main())
