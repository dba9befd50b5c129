"""What Prometheus may scrape at `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.api import Stats
from realtime.server.bridge import EngineBridge
from realtime.server.sessions import Sessions

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
TTFA_BUCKETS_S = (0.05, 0.08, 0.12, 0.16, 0.24, 0.32, 0.5, 0.8, 1.2, 2.0, 4.0, 8.0)


class Metrics:
    """The server's own figures, and the engine's last heartbeat. One registry a server."""

    def __init__(self, bridge: EngineBridge, sessions: Sessions) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(bridge))
        open_sessions = Gauge(
            "moss_sessions", "WebSocket sessions that are open", registry=self.registry
        )
        open_sessions.set_function(lambda: sessions.attached)
        detached_sessions = Gauge(
            "moss_sessions_detached", "Sessions that wait for a socket", registry=self.registry
        )
        detached_sessions.set_function(lambda: len(sessions) - sessions.attached)
        self.responses = Counter(
            "moss_responses", "Responses by how they ended", ["status"], registry=self.registry
        )
        self.ttfa_s = Histogram(
            "moss_ttfa_seconds",
            "From response.start, or the request, to the first sound handed out",
            buckets=TTFA_BUCKETS_S,
            registry=self.registry,
        )
        self.loop_lag_s = Histogram(
            "moss_event_loop_lag_seconds",
            "How late the event loop is",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )
        self.audio_s = Counter(
            "moss_audio_seconds", "Length of the sound that was sent", registry=self.registry
        )
        self.clipped_samples = Counter(
            "moss_clipped_samples", "Samples beyond full scale", registry=self.registry
        )
        self.slow_consumers = Counter(
            "moss_slow_consumers", "Sockets closed for taking nothing", registry=self.registry
        )

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class _EngineCollector(Collector):
    """One gauge for each field of `Stats`, read when scraped."""

    def __init__(self, bridge: EngineBridge) -> None:
        self._bridge = bridge

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("moss_engine_up", "Whether the engine runs", self._bridge.up)
        for name in Stats.__dataclass_fields__ if self._bridge.stats else ():
            value = getattr(self._bridge.stats, name)
            yield GaugeMetricFamily(f"moss_engine_{name}", "See engine.api.Stats", value)
