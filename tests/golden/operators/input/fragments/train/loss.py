"""The loss."""

from generator.language import point, provide
from generator.language.roles import Config, Decoder


def loss(model: Decoder, batch: dict[str, list]) -> float:
    """The mean square."""
    predicted = model(batch["tokens"])
    total = sum((p - t) ** 2 for p, t in zip(predicted, batch["targets"]))
    point("loss.terms", total)
    return total


@provide("loss")
def segment_ids(batch) -> list[int]:
    return batch["segment_ids"]


def main() -> None:
    model = Decoder(Config(width=2))
    print(loss(model, {"tokens": [1.0, 2.0], "targets": [1.0, 2.0], "segment_ids": [0, 1]}))


if __name__ == "__main__":
    main()
