"""The experts that a step of an engine chose for each token."""

from jax import Array

from generator.language import point, requires, splice
from generator.language.roles import Decoder, LayerState, StepInput, hidden, routes_by_token

requires("replayed_experts")


@splice("StepOutput.fields")
def _():
    routes: Array | None = None  # [B, T, L, A]: the experts of each token, in each layer that has some


def hidden_and_routes(
    model: Decoder, tokens: Array, positions: Array, state: LayerState, step: StepInput
) -> tuple[Array, object, Array]:
    """Computes `hidden`, and the experts of each token [B, T, L, A]."""
    x, new = hidden(model, tokens, positions, state, step)
    with point("hidden_and_routes.experts", model):
        experts = x
    return x, new, experts


@splice("hidden_and_routes.experts")
def _(model, routes, experts):
    experts = routes_by_token(routes, model.config)


@splice("run.hidden")
def _(model, tokens, positions, state, step, x, new):
    x, new, experts = hidden_and_routes(model, tokens, positions, state, step)  # [B, T, D], and [B, T, L, A]


@splice("run.output", before="serve_processes")
def _(top, experts):
    top = *top, experts
