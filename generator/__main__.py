"""`python -m generator` is `gen`."""

from generator.commands.cli import main

if __name__ == "__main__":
    main()
