"""`python -m engine.train.evaluation`."""

import sys

from engine.train.evaluation.command import main

sys.exit(main())
