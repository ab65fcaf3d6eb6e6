"""One check of all settings, wherever they come from: flags, a checkpoint, a config.json."""

import dataclasses
import typing

from generator.language import point
from generator.language.roles import Config, InputError


def field_problems(settings: object, bounds: dict[str, tuple[float, float]]) -> list[str]:
    """Lists problems of single fields: numbers must be above 0, or 0 if that is the default, or in `bounds`."""
    problems = []
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), field.type
        if kind in (int, float):
            least, most = (1, 2**31 - 1) if int in (kind, type(value)) else (1e-30, 1e30)  # of 32 bits
            least, most = bounds.get(field.name, (0 if field.default == 0 else least, most))
            allowed = type(value) in (int, kind) and least <= value <= most
            requirement = f"{'an integer' if kind is int else 'a number'} from {least:,} to {most:,}"
        elif choices := (False, True) if kind is bool else typing.get_args(kind):
            allowed, requirement = value in choices, f"one of {choices}"
        else:
            allowed, requirement = type(value) is str and value.isprintable(), "printable text"
        point("field_problems.kind", field, value, allowed, requirement)
        if not allowed:
            problems.append(f"--{field.name.replace('_', '-')} {value}: must be {requirement}")
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
