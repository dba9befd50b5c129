"""What Prometheus may scrape at `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.api import Stats
from realtime.server.bridge import EngineBridge
from realtime.server.row_log import RowRecord
from realtime.server.sessions import Sessions
from realtime.server.shared_cache import Answer

LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
BATCH_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
STEP_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.12, 0.2, 0.5, 1.0)
QUEUE_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
LEAD_BUCKETS_S = (
    -1.0,
    -0.5,
    -0.2,
    -0.1,
    -0.05,
    0.0,
    0.05,
    0.08,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)
TTFA_BUCKETS_S = (0.05, 0.08, 0.12, 0.16, 0.24, 0.32, 0.5, 0.8, 1.2, 2.0, 4.0, 8.0)


class Metrics:
    """The server's own figures, and the engine's last heartbeat. One registry a server."""

    def __init__(self, bridge: EngineBridge, sessions: Sessions) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(bridge))
        rows = EngineMetrics(self.registry)
        bridge.on_stats = rows.heartbeat
        bridge.rows.on_lead, bridge.rows.on_end = rows.lead, rows.ended
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
        self._caches = Counter(
            "moss_reference_cache",
            "What was asked of the caches of reference audio, decoded sounds and their codes",
            ["cache", "answer"],
            registry=self.registry,
        )
        self.slow_consumers = Counter(
            "moss_slow_consumers", "Sockets closed for taking nothing", registry=self.registry
        )

    def counting(self, cache: str) -> Callable[[Answer], None]:
        """Return what counts the answers of a cache of reference audio."""
        return lambda answer: self._caches.labels(cache, answer).inc()

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class EngineMetrics:
    """What rows cost and how they ended, and the engine's fill at each heartbeat."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._batch = Histogram(
            "moss_batch_rows",
            "Rows that run, at each heartbeat of the engine",
            buckets=BATCH_BUCKETS,
            registry=registry,
        )
        self._step_s = Histogram(
            "moss_step_seconds",
            "Time of the last tick, at each heartbeat while rows run",
            buckets=STEP_BUCKETS_S,
            registry=registry,
        )
        self._lead_s = Histogram(
            "moss_lead_seconds",
            "Sound that a live listener has left when more comes; below 0 is a gap",
            buckets=LEAD_BUCKETS_S,
            registry=registry,
        )
        self._queue_s = Histogram(
            "moss_queue_seconds",
            "How long rows waited for a place",
            ["lane"],
            buckets=QUEUE_BUCKETS_S,
            registry=registry,
        )
        self._cancel_s = Histogram(
            "moss_cancel_seconds",
            "From a cancellation to the row's places in the engine being free",
            buckets=STEP_BUCKETS_S,
            registry=registry,
        )
        self._rows = Counter(
            "moss_rows",
            "Rows by how they ended: completed, cancelled, max_audio, context, failed, guard:NAME "
            "or refused:CODE",
            ["lane", "reason"],
            registry=registry,
        )
        self._grid_rows = Counter(
            "moss_grid_rows",
            "Grid rows of contexts, computed or reused from the cache",
            ["source"],
            registry=registry,
        )
        self._paused_s = Counter(
            "moss_paused_seconds", "Time rows waited", ["why"], registry=registry
        )

    def heartbeat(self, stats: Stats) -> None:
        """The engine lives."""
        self._batch.observe(stats.rows_running)
        if stats.rows_running:
            self._step_s.observe(stats.step_ms / 1000)

    def lead(self, record: RowRecord, lead_s: float) -> None:
        """More sound came for a listener who had so much left."""
        self._lead_s.observe(lead_s)

    def ended(self, record: RowRecord) -> None:
        """A row is over."""
        counts = record.counts
        self._rows.labels(record.lane, record.reason).inc()
        if not record.reason.startswith("refused"):
            self._queue_s.labels(record.lane).observe(counts.queue_ms / 1000)
        if record.cancel_ms is not None:
            self._cancel_s.observe(record.cancel_ms / 1000)
        self._grid_rows.labels("computed").inc(counts.prefill_grid_rows)
        self._grid_rows.labels("reused").inc(counts.reused_grid_rows)
        self._paused_s.labels("text").inc(counts.starved_ms / 1000)
        self._paused_s.labels("flow").inc(counts.flow_paused_ms / 1000)


class _EngineCollector(Collector):
    """One gauge for each field of `Stats`, read when scraped."""

    def __init__(self, bridge: EngineBridge) -> None:
        self._bridge = bridge

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("moss_engine_up", "Whether the engine runs", self._bridge.up)
        for name in Stats.__dataclass_fields__ if self._bridge.stats else ():
            value = getattr(self._bridge.stats, name)
            yield GaugeMetricFamily(f"moss_engine_{name}", "See engine.api.Stats", value)
