"""Jinja2, set up so that an undefined name in a template is an error."""

from __future__ import annotations

import jinja2

from generator.errors import LoomError
from generator.recipe import Recipe


def render_text(template: str, where: str, recipe: Recipe, **context: object) -> str:
    """Renders one template.

    Args:
        template: the text.
        where: its place, for errors.
        context: names beside those that every template has.

    Raises:
        LoomError: a syntax error or an undefined name, with the line.
    """
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    names = {
        **recipe.settings,
        "source": recipe.architecture_file.data.get("source", ""),
        "target_title": recipe.target_file.data["title"],
        "title": recipe.architecture_file.data["title"],
        **context,
    }
    try:
        return environment.from_string(template).render(names)
    except jinja2.TemplateSyntaxError as error:
        raise LoomError(f"not a valid template: {error.message}", f"{where}:{error.lineno}", "Mend it.") from None
    except jinja2.UndefinedError as error:
        raise LoomError(f"the template uses a name that is not there: {error.message}", where, "Mend it.") from None
