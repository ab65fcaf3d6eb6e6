"""Chat templates that are hostile: each is rejected, and the next one rendered."""

import os

import pytest

from generator.language import requires
from generator.language.roles import InputError, module

requires("chat_template", "serve")

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("text", ["{{ 10 ** (10 ** 9) }}", "{{ 'x' * 10**10 }}"])
def test_a_template_that_exceeds_time_or_memory_is_rejected(text):
    """Even while it is compiled."""
    template = module("chat_template")
    with pytest.raises(template.TemplateError):
        template.Renderer({"default": text}, seconds=1).render("default", {}, 100)


def test_a_template_cannot_block_or_crash_the_server():
    template = module("chat_template")
    texts = {"default": "{{ x }}", "loop": LOOPS, "many": "{{ 'x' * (10 ** n) }}"}
    renderer = template.Renderer(texts, seconds=1)
    for name, names in ("loop", {}), ("many", {"n": 10}), ("many", {"n": 3}), ("default", {"x": "y" * 101}):
        with pytest.raises(template.TemplateError):
            renderer.render(name, names, 100)
        assert renderer.render("default", {"x": "größer"}, 100) == "größer"
    assert template.Renderer({"default": "{{ cycler.__init__.__globals__ }}"}).variables == {"default": []}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_template_that_is_no_file_is_refused(make, tmp_path):
    (tmp_path / "additional_chat_templates").mkdir()
    make(tmp_path / "additional_chat_templates/tool_use.jinja")
    with pytest.raises(InputError, match=r"tool_use\.jinja is not a file: fix or remove it"):
        module("chat_template").load_chat_template(None, str(tmp_path / "tokenizer.json"))
