"""Greets.

Source: Hello, world.
"""

from generator.language.roles import name_of


def greet(person: dict) -> str:
    """What to say to a person."""
    # the name is the other fragment's
    return f"Hello, {name_of(person)}!"


def shout(person: dict) -> str:
    """Nobody needs this."""
    return greet(person).upper()
