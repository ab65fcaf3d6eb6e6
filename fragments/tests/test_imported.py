"""A run's directory that holds an imported checkpoint is served like the checkpoint itself."""

import pytest

from generator.language import requires
from generator.language.roles import (
    InputError,
    ModelSettings,
    import_hf,
    load_to_serve,
    load_tokenizer,
    module,
    save_served,
)

requires("convert", "serve")


def test_a_checkpoint_keeps_its_chat_template(tmp_path):
    copied = tmp_path / "hf"
    save_served(copied)
    (copied / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    import_hf(str(copied), str(tmp_path / "run"))
    config, model, _ = load_to_serve(ModelSettings(checkpoint_dir=str(tmp_path / "run"), dtype="bfloat16"))
    assert model.config == config.model and config.dtype == "bfloat16"
    tokenizer = load_tokenizer(config.tokenizer)
    template = module("chat_template").load_chat_template(tokenizer, config.tokenizer)
    assert template.encode([{"role": "user", "content": " Hello? "}]) == tokenizer.encode(" Hello? !")
    with pytest.raises(InputError, match="give either --checkpoint-dir or --hf"):
        load_to_serve(ModelSettings())
    (copied / "chat_template.jinja").write_text("{% if")
    with pytest.raises(InputError, match="the chat template beside it cannot be read"):
        module("chat_template").load_chat_template(tokenizer, str(copied / "tokenizer.json"))
