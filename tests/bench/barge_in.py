"""Time to first audio after a barge-in beside that after a clean turn, in one long dialogue.

`python -m tests.bench.barge_in [--minutes 10] [--turns 10]` prints JSON. A server with the shipped
voice runs in a process of its own; the dialogue begins with so many minutes of sound, as a capsule
gives them. Clean and interrupted turns alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np

from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR
from realtime.protocol.messages import NewItem, ResponseStart
from realtime.sdk import Client, Session
from tests.bench.measure import percentiles, report
from tests.server_process import server_process
