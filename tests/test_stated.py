"""What an architecture states: `[hf]`, over what fragments say of checkpoints, and `[order]`, of splices at a point."""

from __future__ import annotations

import pytest
from miniature import files

from generator.errors import LoomError
from generator.recipe.library import Library
from generator.weaver import weave

FRAGMENTS = {
    "model/model": '''
        """The model."""

        from collections.abc import Iterator

        from generator.language import point

        def tensors() -> Iterator[tuple]:
            point("hf.tensors")

        def structure():
            yield "model_type", "toy", "another"
            point("hf.structure")

        def complete(hf):
            point("hf.complete", hf)
            return hf

        def model(x):
            point("model.x", x)
            return x, tensors, structure, complete
    ''',
    "model/norm": '''
        """A norm."""

        from generator.language import splice

        @splice("hf.tensors")
        def _():
            yield "norm.scale", "norm.weight", "d -> d"
            yield "norm.bias", "norm.bias", "d -> d"

        @splice("hf.structure")
        def _():
            yield "norm_bias", True, "model/no_bias"

        @splice("hf.complete")
        def _(hf):
            hf.setdefault("norm_bias", hf.get("bias", True))

        @splice("model.x", before="turn")
        def _(x):
            x = x / 2
    ''',
    "model/turn": '''
        """A turn."""

        from generator.language import splice

        @splice("model.x")
        def _(x):
            x = -x
    ''',
}
SELECTED = 'title = "Toy"\nfragments = ["model/model", "model/norm", "model/turn"]\n'
BASE = {"templates/architectures/base.toml": SELECTED + '[hf.tensors]\n"norm.bias" = ["b", "d -> (d)"]\n'}
ON_TOP = 'base = "base"\ntitle = "On top"\n'


def woven(stated: str, architecture: str = SELECTED) -> str:
    library = Library(files(FRAGMENTS) | BASE | {"templates/architectures/toy.toml": architecture + stated})
    return weave("toy", "any", library).files["model.py"].partition('"""\n')[2]


def refused(stated: str) -> str:
    with pytest.raises(LoomError) as raised:
        woven(stated)
    return str(raised.value)


def test_tensors_have_the_names_and_layouts_of_the_architecture():
    text = woven('[hf.tensors]\n"norm.scale" = "ln.weight"\n"norm.bias" = ["ln.bias", "d -> d 1"]\n')
    assert 'yield "norm.scale", "ln.weight", "d -> d"\n' in text
    assert 'yield "norm.bias", "ln.bias", "d -> d 1"\n' in text


def test_settings_and_defaults_stand_in_place_of_what_a_fragment_says():
    text = woven("[hf.settings]\nnorm_bias = false\n[hf.defaults]\nnorm_bias = false\n")
    assert 'yield "norm_bias", False, "model/no_bias"\n' in text
    assert 'hf.setdefault("norm_bias", False)\n    return hf\n' in text


def test_what_no_fragment_says_comes_first():
    text = woven('[hf.settings]\nact = "relu2"\n[hf.defaults]\nact = "relu2"\n')
    assert 'yield "act", "relu2", "fragments for another act"\n    yield "norm_bias"' in text
    assert 'hf.setdefault("act", "relu2")\n    hf.setdefault("norm_bias"' in text


def test_a_setting_has_another_name_wherever_fragments_speak_of_it():
    text = woven('[hf.names]\nnorm_bias = "use_bias"\n[hf.defaults]\nuse_bias = false\n')
    assert 'hf.setdefault("use_bias", False)' in text and '"use_bias", True' in text and "norm_bias" not in text


def test_a_base_is_built_on():
    text = woven('[hf.tensors]\n"norm.scale" = "s"\n', ON_TOP)
    assert '"norm.scale", "s", "d -> d"' in text and '"norm.bias", "b", "d -> (d)"' in text
    assert "norm" not in woven("", ON_TOP + 'without = ["model/norm"]\n')  # nor is what the base said of it missed


def test_a_name_that_no_fragment_has_is_refused():
    assert refused('[hf.tensors]\n"norm.scales" = "x"\n') == (
        "templates/architectures/toy.toml:4: no selected fragment speaks of a parameter 'norm.scales'\n"
        "  Did you mean norm.scale or norm.bias?"
    )
    message = (
        "toy.toml:4: no selected fragment speaks of a setting of config.json 'norm_bais'\n  Did you mean norm_bias"
    )
    assert message in refused('[hf.names]\nnorm_bais = "x"\n')
    assert "norm.scale is a list, not a list of 2" in refused('[hf.tensors]\n"norm.scale" = ["a", "b", "c"]\n')
    assert "toy.toml:4: hf.tensors.norm.scale is 1, not a string or a list" in refused(
        '[hf.tensors]\n"norm.scale" = 1\n'
    )
    assert "unknown key 'tensor' in this table of checkpoints" in refused('[hf.tensor]\n"norm.scale" = "x"\n')


def test_the_order_of_an_architecture_is_above_that_of_fragments():
    assert "x = x / 2\n    x = -x\n" in woven("")
    assert "x = -x\n    x = x / 2\n" in woven('[order]\n"model.x" = ["model/turn", "model/norm"]\n')


def test_an_order_of_what_is_not_there_is_refused():
    assert refused('[order]\n"model.x" = ["model/norm", "model/model"]\n') == (
        "templates/architectures/toy.toml:4: model/model has no splice for the point 'model.x'\n"
        "  Did you mean model/norm or model/turn?"
    )


def test_a_setting_that_a_fragment_only_reads_takes_a_default():
    reading = FRAGMENTS | {
        "model/reading": '''
            """A reading."""

            from generator.language import splice

            @splice("hf.complete")
            def _(hf):
                hf["bias"] = hf.get("act")
        '''
    }
    selected = SELECTED.replace('"model/turn"', '"model/turn", "model/reading"')
    library = Library(files(reading) | {"templates/architectures/toy.toml": selected + '[hf.defaults]\nact = "x"\n'})
    text = weave("toy", "any", library).files["model.py"]
    assert 'hf.setdefault("act", "x")' in text and 'hf["bias"] = hf.get("act")' in text
