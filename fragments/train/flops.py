"""FLOPs of the model, by two conventions."""

from generator.language import point
from generator.language.roles import Config


def flops_per_token(config: Config, causal: bool) -> float:
    """Returns the FLOPs per token of a full sequence, forward and backward, without recomputation.

    `causal` counts only the causal half of attention.
    """
    parameters = config.width * config.vocab_size  # that multiply each token; the embedding is a lookup
    with point("flops.attention", parameters, config=config):
        attention = 0  # FLOPs of a token with all tokens of its sequence
    point("flops", parameters, config=config)
    point("flops.parameters", parameters)
    return 6 * parameters + (attention / 2 if causal else attention)
