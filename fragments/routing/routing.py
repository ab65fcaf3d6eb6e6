"""Rollout routing replay: training uses the experts that the engine chose for each token, of prompts too.

Rounding makes the engine and training choose differently where two experts score nearly the same, and then a token
has another probability. A token that the engine computed twice, as it preempted its sequence, has the later choice.

Source: Ma et al. 2025, arXiv 2510.11370.
"""

import base64

import jax
import numpy as np

from generator.language import requires, setting, splice
from generator.language.roles import (
    Request,
    Sampled,
    StepInput,
    layers_with_experts,
    numbers_dtype,
)

requires("rollouts", "step_routes", "deep_fields")


class Routes:
    """The experts of all tokens whose keys are in an engine's pages, which sequences may share."""

    def __init__(self, pages: int, size: int):
        """Takes the number of pages, and of positions in each."""
        self.pages, self.size = pages, size
        self.experts: np.ndarray | None = None  # [pages, size, L, A], from the first step on

    def write(self, step: StepInput, requests: list[Request], routes: np.ndarray) -> None:
        """Writes the experts [B, T, L, A] that a step chose; requests that ended since have no pages any more."""
        if self.experts is None:
            self.experts = np.zeros((self.pages, self.size, *routes.shape[2:]), routes.dtype)
        most_pages = step.block_tables.shape[-1]
        tables = step.block_tables.reshape(len(routes), -1, most_pages)[:, 0]  # without those of windows
        for row, request in enumerate(requests):
            if not request.finish:
                places = step.starts[row] + np.arange(step.counts[row])
                self.experts[tables[row, places // self.size], places % self.size] = routes[row, : len(places)]

    def read(self, request: Request) -> np.ndarray:
        """Returns the experts of the tokens of a request, without the last one: [tokens, L, A]."""
        experts = self.experts[request.pages]
        return experts.reshape(-1, *experts.shape[2:])[: len(request.sequence) - 1]


@splice("Request.fields")
def _():
    routes: np.ndarray | None = None  # [tokens, L, A]: the experts of each token but the last, once it has ended


@splice("Engine.made")
def _(self):
    self.routes: Routes | None = None  # set by those who want the experts of tokens


@splice("Engine.collected")
def _(self, output, requests, step):
    if self.routes is not None:
        self.routes.write(step, requests, jax.device_get(output.routes))


@splice("Engine.release")
def _(self, request):
    if self.routes is not None:
        request.routes = self.routes.read(request)


@splice("Environment.add_turn", optional=True)
def _(chat, request):
    chat.routes = request.routes  # of the turns before too


@splice("Rollouts.started")
def _(engine):
    engine.routes = Routes(engine.pool.pages, engine.settings.page_size)


@splice("Sampled.fields")
def _():
    experts: str = ""  # of each token but the last, in each layer: base64 of an array [tokens, L, A]


@splice("Rollouts.sampled")
def _(pairs, sums, result):
    routed = [(x, advantage, base64.b64encode(x.routes).decode()) for x, advantage in pairs]
    result = [Sampled(x.prompt, x.tokens, x.logprobs, advantage, experts) for x, advantage, experts in routed], sums


@splice("Rollouts.batch")
def _(self, batch, shape):
    config = self.config
    sizes = layers_with_experts(config), config.experts_per_token
    batch["experts"] = np.full((*shape, *sizes), -1, numbers_dtype(config))  # of padding: the router's own choice


@splice("Rollouts.row")
def _(self, batch, row, end, sample):
    experts = batch["experts"][row, :end]
    experts[:] = np.frombuffer(base64.b64decode(sample.experts), experts.dtype).reshape(experts.shape)


@splice("abstract_batch.arrays")
def _(arrays, layout, shape, config):
    if config.objective == setting("policy_objective"):
        sizes = layers_with_experts(config), config.experts_per_token
        arrays["experts"] = jax.ShapeDtypeStruct((*shape, *sizes), numbers_dtype(config), sharding=layout)


@splice("test_rollouts.requests", optional=True)
def _(requests, config):
    for request in requests:
        sizes = len(request.tokens), layers_with_experts(config), config.experts_per_token
        request.routes = np.zeros(sizes, numbers_dtype(config))
