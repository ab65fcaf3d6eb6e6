"""Command line: export of LoRA adapters alone."""

from tyro.conf import Positional

from generator.language import requires, splice

requires("huggingface/adapter_file")


def export_adapters(
    directory: Positional[str], peft_dir: Positional[str], base: str = "", step: int | None = None
) -> None:
    """Writes the adapters of a checkpoint as a new directory of peft, without the weights that they are for.

    Args:
        base: Hugging Face directory or name of those weights, which peft then loads by itself.
        step: Of the checkpoint; by default the newest.
    """
    from generator.language.roles import atomic_directory, load_checkpoint, save_adapters

    config, model = load_checkpoint(directory, None, step)
    with atomic_directory(peft_dir) as half:
        save_adapters(config, model, half, base)
    print(f"{peft_dir}: for PeftModel.from_pretrained")


@splice("checkpoint.commands")
def _(commands):
    commands["export-adapters"] = export_adapters
