"""Numbers of the server for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from generator.language.roles import Engine


class ServeMetrics:
    """Counts of requests and tokens, times that clients wait for, and, when it is read, how the engine stands."""

    def __init__(self, engine: Engine):
        self.engine, self.registry = engine, CollectorRegistry()
        self.registry.register(self)
        more = {"registry": self.registry}
        self.answers = Counter("serve_answers", "Answers to HTTP requests, by status", ["status"], **more)
        self.finished = Counter("serve_requests", "Choices that ended, by how", ["finish"], **more)
        self.prompt_tokens = Counter("serve_prompt_tokens", "Tokens of prompts", **more)
        self.tokens = Counter("serve_tokens", "Tokens generated", **more)
        waits = [0.005 * 2**i for i in range(14)]  # 5 ms to 41 s
        self.first = Histogram(
            "serve_time_to_first_token_seconds", "From a request to its first token", buckets=waits, **more
        )
        waits = [0.001 * 2**i for i in range(12)]  # 1 ms to 2 s
        self.each = Histogram(
            "serve_time_per_output_token_seconds", "For each token after the first", buckets=waits, **more
        )

    def collect(self) -> Iterator[Metric]:
        engine = self.engine
        yield GaugeMetricFamily("serve_queued", "Requests that wait", engine.queued)
        yield GaugeMetricFamily("serve_running", "Requests that run", engine.running)
        yield GaugeMetricFamily("serve_kv_cache_pages", "Pages of the cache", engine.pages)
        yield GaugeMetricFamily("serve_kv_cache_pages_used", "Pages that hold something", engine.pages_used)
        yield CounterMetricFamily("serve_prefix_queries", "Prompt tokens looked up in the cache", engine.prefix_queries)
        yield CounterMetricFamily("serve_prefix_hits", "Those that were there", engine.prefix_hits)
