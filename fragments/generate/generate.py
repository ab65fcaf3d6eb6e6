"""Text generation."""

from generator.roles import Cache, Decoder
from generator.marks import receive


def decode(model: Decoder, tokens, positions, cache: Cache):
    """One step."""
    x = model.hidden(tokens)
    receive(cache)
    return model.embedding.logits(x), cache

def main() -> None:
    print(decode)

if __name__ == "__main__":
    main()
