"""FLOPs of the model, by two conventions."""

from generator.language import point
from generator.language.roles import Config


def flops_per_token(config: Config, causal: bool) -> float:
    """Returns the FLOPs per token of a full sequence, forward and backward, without recomputation.

    `causal` counts only the causal half of attention.
    """
    products = {}  # parameters that multiply each token
    scores = {}  # attention FLOPs of a token with all tokens of its sequence
    point("flops", products, scores, config=config)
    point("flops.products", products)
    attention = sum(scores.values())
    return 6 * sum(products.values()) + (attention / 2 if causal else attention)
