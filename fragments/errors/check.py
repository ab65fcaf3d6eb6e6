"""One check of all settings, wherever they come from: flags, a checkpoint, a config.json."""

import dataclasses
import typing

from generator.language import point
from generator.language.roles import Config, InputError


def field_problems(settings: object) -> list[str]:
    """Lists problems of single fields; a number must be within the bounds that its annotation has."""
    problems = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        kind = field.type
        if typing.get_origin(kind) is typing.Annotated:
            kind, least, most = typing.get_args(kind)
            if type(value) is int:
                most = min(most, 2**31 - 1)  # as JAX takes integers
            allowed = type(value) in (int, kind) and least <= value <= most
            requirement = f"{'an integer' if kind is int else 'a number'} from {least:,} to {most:,}"
        elif choices := (False, True) if kind is bool else typing.get_args(kind):
            allowed = value in choices
            requirement = f"one of {choices}"
        else:
            allowed = type(value) is kind and str(value).isprintable()
            requirement = "printable text" if kind is str else f"of type {kind.__name__}"
        point("field_problems.kind", field, value, allowed, requirement)
        if not allowed:
            problems.append(f"--{field.name.replace('_', '-')} {value}: must be {requirement}")
    return problems


def check_config(config: Config, source: str = "") -> None:
    """Raises InputError that lists all invalid settings; `source` says where they are from, if not flags."""
    problems = field_problems(config)
    if not problems:
        point("check_config.together", config, problems)
    if problems:
        raise InputError("\n".join(source + problem for problem in problems))
