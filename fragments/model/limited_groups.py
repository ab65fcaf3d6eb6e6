"""Group-limited routing: a token is routed to experts of its best groups only.

Source: DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2 (node-limited routing).
"""

import jax
import jax.numpy as jnp
from jax import Array

from generator.language import requires, splice
from generator.language.roles import PositiveInt

requires("balance_bias")


class ModelConfig:
    expert_groups: PositiveInt  # groups that the experts are divided into
    groups_per_token: PositiveInt  # groups that the experts of a token are chosen from


@splice("check_config.together")
def _(config, problems):
    groups, kept = config.expert_groups, config.groups_per_token
    if config.experts % groups or config.experts < 2 * groups:  # a group is ranked by its best two
        problems.append(f"--expert-groups {groups}: must divide --experts {config.experts} into groups of at least 2")
    elif kept > groups or kept * config.experts // groups < config.experts_per_token:
        bound = f"must be at most {groups}, and hold the --experts-per-token {config.experts_per_token}"
        problems.append(f"--groups-per-token {kept}: {bound}")


def keep_groups(ranks: Array, groups: int, kept: int) -> Array:
    """Masks ranks [B, T, E] with -inf outside the `kept` groups whose two best experts sum highest."""
    members = ranks.reshape(*ranks.shape[:-1], groups, -1)  # [B, T, G, E/G]
    _, best = jax.lax.top_k(jax.lax.top_k(members, 2)[0].sum(axis=-1), kept)  # [B, T, kept]
    is_kept = jnp.any(best[..., None] == jnp.arange(groups), axis=-2)  # [B, T, G]
    return jnp.where(is_kept[..., None], members, -jnp.inf).reshape(ranks.shape)


@splice("MixtureOfExperts.parameters")
def _(self, config):
    self.groups, self.kept_groups = config.expert_groups, config.groups_per_token


@splice("MixtureOfExperts.ranks")
def _(self, ranks):
    ranks = keep_groups(ranks, self.groups, self.kept_groups)


@splice("hf.sizes")
def _():
    yield "n_group", "expert_groups"
    yield "topk_group", "groups_per_token"
