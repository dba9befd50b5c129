"""Whether a REST request that needs the engine may start."""

from __future__ import annotations

from realtime.server.errors import ApiError
from realtime.server.services import Services

RETRY_AFTER_S = 2


def check_ready(services: Services) -> None:
    """Raise `ApiError` 503 while the server warms up, restarts its engine or shuts down."""
    if why := services.why_not_ready():
        code = "draining" if services.draining else "not_ready"
        raise ApiError(503, code, f"the server is {why}", retry_after_s=RETRY_AFTER_S)
