"""Command line: prepares data, and shows a batch of it."""

import tyro

from generator.language import point, requires
from generator.language.roles import ending_with_messages, prepare

requires("data/prepare")


@ending_with_messages()
def main() -> None:
    with point("data.main"):
        tyro.extras.subcommand_cli_from_dict({"prepare": prepare}, prog=f"python -m {__package__}.data")


if __name__ == "__main__":
    main()
