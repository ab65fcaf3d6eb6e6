"""One check of all settings, wherever they come from: flags, a checkpoint, a config.json."""

import dataclasses
import typing

from generator.language import point
from generator.language.roles import Config, InputError


def field_problems(settings: object, bounds: dict[str, tuple[float, float]]) -> list[str]:
    """Lists problems of single fields: numbers must be above 0, or 0 if that is the default, or in `bounds`."""
    problems = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        choices = (False, True) if field.type is bool else typing.get_args(field.type)
        if field.type in (int, float):
            least, most = (1, 2**31 - 1) if int in (field.type, type(value)) else (1e-30, 1e30)  # of 32 bits
            least, most = bounds.get(field.name, (0 if field.default == 0 else least, most))
            allowed = type(value) in (int, field.type) and least <= value <= most
            wanted = f"{'an integer' if field.type is int else 'a number'} from {least:,} to {most:,}"
        else:
            is_text = type(value) is str and value.isprintable()
            several = typing.get_origin(field.type) in (dict, tuple)  # checked by the code that takes them
            allowed = several or (value in choices if choices else is_text)
            wanted = f"one of {choices}" if choices else "printable text"
        point("field_problems.kind", field, value, allowed, wanted)
        if not allowed:
            problems.append(f"--{field.name.replace('_', '-')} {value}: must be {wanted}")
    return problems


def check_config(config: Config, source: str = "") -> None:
    """Raises InputError that lists all invalid settings; `source` says where they are from, if not flags."""
    bounds = {"layers": (1, 10_000)}
    point("check_config.bounds", bounds)
    problems = field_problems(config, bounds)
    if not problems:
        point("check_config.together", config, problems)
    if problems:
        raise InputError("\n".join(source + problem for problem in problems))
