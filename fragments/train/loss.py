"""Next-token loss."""

import jax
from generator.roles import Decoder


def loss(model: Decoder, batch: dict):
    """Mean cross-entropy."""
    logits = model(batch["tokens"])
    return logits.sum()

def main() -> None:
    print(jax, loss)

if __name__ == "__main__":
    main()
