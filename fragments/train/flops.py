"""FLOPs of the model, by two conventions."""

from generator.language import point
from generator.language.roles import Config


def flops_per_token(config: Config, causal: bool) -> float:
    """FLOPs of the model, forward and backward, for a token of a full sequence; no recomputation is counted.

    Two conventions: attention counted in full, or only its causal half.
    """
    products = {}  # parameters that take part in a product with each token
    scores = {}  # FLOPs of a token with all the tokens of its sequence
    point("flops", products, scores, config=config)
    point("flops.products", products)
    attention = sum(scores.values())
    return 6 * sum(products.values()) + (attention / 2 if causal else attention)
