"""Group-limited routing by the best expert: a token is routed to experts of those groups whose best one ranks highest.

Source: DeepSeek-AI 2024, arXiv 2405.04434, section 2.2.2 (device-limited routing).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import requires, splice
from generator.language.roles import PositiveInt

requires("experts")


class ModelConfig:
    expert_groups: PositiveInt  # groups that the experts are divided into
    groups_per_token: PositiveInt  # groups that the experts of a token are chosen from


@splice("check_config.together")
def _(config, problems):
    groups, kept = config.expert_groups, config.groups_per_token
    if config.experts % groups:
        problems.append(f"--expert-groups {groups}: must divide --experts {config.experts}")
    elif kept > groups or kept * config.experts // groups < config.experts_per_token:
        bound = f"must be at most {groups}, and hold the --experts-per-token {config.experts_per_token}"
        problems.append(f"--groups-per-token {kept}: {bound}")


def keep_best_groups(scores: Array, groups: int, kept: int) -> Array:
    """Masks scores [B, T, E] with -inf outside the `kept` groups whose best experts score highest."""
    members = scores.reshape(*scores.shape[:-1], groups, -1)  # [B, T, G, E/G]
    _, best = jax.lax.top_k(members.max(axis=-1), kept)  # [B, T, kept]
    is_kept = jnp.any(best[..., None] == jnp.arange(groups), axis=-2)  # [B, T, G]
    return jnp.where(is_kept[..., None], members, -jnp.inf).reshape(scores.shape)


@splice("MixtureOfExperts.parameters")
def _(self, config):
    self.groups, self.kept_groups = config.expert_groups, config.groups_per_token


@splice("MixtureOfExperts.choice")
def _(self, scores, weights, chosen):
    ranks = keep_best_groups(scores, self.groups, self.kept_groups)
    weights, chosen = jax.lax.top_k(ranks, self.active)  # [B, T, A]: the experts of each token


@splice("hf.sizes")
def _():
    yield "n_group", "expert_groups"
    yield "topk_group", "groups_per_token"


@splice("hf.structure")
def _():
    yield "topk_method", "group_limited_greedy", "experts of any group, by leaving model/best_groups out,"
