"""Queries projected from a latent of their own.

Source: DeepSeek-AI 2024, arXiv 2405.04434, section 2.1.2.
"""

from generator.language import point, requires, splice
from generator.language.roles import Linear, Norm, PositiveInt

requires("latent_attention")


class ModelConfig:
    query_rank: PositiveInt  # size of the latent of queries


@splice("Attention.query")
def _(self, config, D, N, H, std, rngs):
    Q = config.query_rank
    self.query_latent = Linear("BTD,DQ->BTQ", (D, Q), ("embed", "latent"), std, rngs)
    self.query_norm = Norm(Q, 1e-6)
    self.query = Linear("BTQ,QNH->BTNH", (Q, N, H), ("embed", "heads", "head_size"), std, rngs)


@splice("Attention.project_query")
def _(self, x, q):
    with point("Attention.query_latent", x):
        q = self.query(self.query_norm(self.query_latent(x)))  # [B, T, N, H]


@splice("flops.query")
def _(query, config):
    query = config.query_rank * (config.width + config.heads * config.head_size)


@splice("hf.query")
def _():
    yield "attention.query_latent.kernel", "model.layers.{}.self_attn.q_a_proj.weight", "d q -> q d"
    yield "attention.query_norm.scale", "model.layers.{}.self_attn.q_a_layernorm.weight", "q -> q"
    yield "attention.query.kernel", "model.layers.{}.self_attn.q_b_proj.weight", "q n h -> (n h) q"


@splice("hf.sizes")
def _():
    yield "q_lora_rank", "query_rank"


@splice("hf.low_rank_query")
def _():
    yield "low_rank_query", True, "queries without a latent, by leaving model/low_rank_query out,"
