"""Metrics of the server for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from generator.language.roles import Engine


class ServeMetrics:
    """Counts of requests and tokens, latencies, and the state of the engine at the time of a scrape."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.registry = CollectorRegistry()
        self.registry.register(self)
        where = {"registry": self.registry}
        self.answers = Counter("serve_answers", "HTTP responses, by status", ["status"], **where)
        self.finished = Counter("serve_requests", "Choices, by finish reason", ["finish"], **where)
        self.prompt_tokens = Counter("serve_prompt_tokens", "Prompt tokens", **where)
        self.tokens = Counter("serve_tokens", "Generated tokens", **where)
        waits = [0.005 * 2**i for i in range(14)]  # 5 ms to 41 s
        self.first = Histogram("serve_time_to_first_token_seconds", "Time to first token", buckets=waits, **where)
        waits = [0.001 * 2**i for i in range(12)]  # 1 ms to 2 s
        self.each = Histogram("serve_time_per_output_token_seconds", "Time per output token", buckets=waits, **where)

    def collect(self) -> Iterator[Metric]:
        engine = self.engine
        yield GaugeMetricFamily("serve_queued", "Waiting requests", len(engine.queued))
        yield GaugeMetricFamily("serve_running", "Running requests", len(engine.running))
        yield GaugeMetricFamily("serve_kv_cache_pages", "Pages of the KV cache", engine.pages)
        yield GaugeMetricFamily("serve_kv_cache_pages_used", "Pages in use", engine.pages_used)
        yield CounterMetricFamily("serve_prefix_queries", "Prompt tokens looked up in the cache", engine.prefix_queries)
        yield CounterMetricFamily("serve_prefix_hits", "Prompt tokens found in the cache", engine.prefix_hits)
