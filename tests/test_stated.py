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


LAYER = '''
    """A layer."""

    from generator.language import splice

    class Config:
        width: int = 4  # of x
        heads: int = 2  # of x

    @splice("hf.tensors")
    def _():
        yield "query.kernel", "layers.{}.q.weight", "d n h -> (n h) d"
        yield "key.kernel", "layers.{}.k.weight", "d n h -> (n h) d"

    @splice("hf.structure")
    def _():
        yield "hidden_size", "width"
        yield "num_heads", "heads"
'''
QUERY = '[hf.tensors]\n"query.kernel" = '


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            QUERY + '["layers.{}.q", "d n h -> q r s"]',
            "'d n h -> q r s' is no layout of a tensor\n  Write one like d n h",
        ),
        (QUERY + '["layers.{}.q", "nonsense"]', "'nonsense' is no layout of a tensor"),
        (QUERY + '["layers.{}.q", "d n h -> (h n) d"]', "is no layout of a tensor"),  # a copy: not the parameter itself
        (QUERY + '["layers.{}.q", "d n -> n d"]', "layers.{}.q has 1 {} and 'd n -> n d' 2 axes"),
        (QUERY + '""', "'' cannot be the name of a tensor\n  Write one like layers.{}.q.weight"),
        (QUERY + '"layers.{x}.q"', "cannot be the name of a tensor"),
        (QUERY + '"layers.{}.q{"', "cannot be the name of a tensor"),
        (QUERY + '"layers.{}.q\\u202e"', "'layers.{}.q\\u202e' cannot be the name of a tensor"),
        (QUERY + '"q"', "q has 0 {} and 'd n h -> (n h) d' 3 axes"),
        (QUERY + '"layers.{}.{}.q"', "layers.{}.{}.q has 2 {} and 'd n h -> (n h) d' 3 axes"),
        (
            QUERY + '"layers.{}.k.weight"',
            "layers.{}.k.weight would be key.kernel and query.kernel\n  Give query.kernel",
        ),
        ('[hf.names]\nhidden_size = ""', "'' cannot be the name of hidden_size"),
        ('[hf.names]\nhidden_size = "num_heads"', "num_heads would be heads and width\n  Give hidden_size a name"),
        ('[hf.names]\nfoo = "x"', "'foo'\n  There is bias, hidden_size, norm_bias, num_heads."),
        ('[hf.settings]\nmodel_type = "x"', "model_type is no setting among others\n  Write it above the tables"),
        ("[hf.settings]\nact = nan", "act is nan, which no config.json can say"),
        ("[hf.defaults]\nact = [1, inf]", "act is [1, inf], which no config.json can say"),
        ('[hf.unread]\nact = { value = nan, select = "x" }', "act is nan, which no config.json can say"),
        (
            "[hf.unread]\nact = { value = 1 }",
            "this setting that no fragment reads has no select\n  Add select, a string",
        ),
        ("[hf.export]\nact = inf", "act is inf, which no config.json can say"),
        ('[hf.defaults]\nhidden_size = "x"', "width is 'x', and model/layer has it as int"),
        ('[order]\n"model.x" = ["model/norm"]', "the order at 'model.x' is not one of two fragments or more"),
        ('[order]\n"model.x" = ["model/norm", "model/turn", "model/norm"]', "each named once"),
    ],
)
def test_what_no_checkpoint_can_be_is_refused(stated, message):
    selected = SELECTED.replace('"model/turn"', '"model/turn", "model/layer"')
    library = Library(
        files(FRAGMENTS | {"model/layer": LAYER}) | {"templates/architectures/toy.toml": f"{selected}{stated}\n"}
    )
    with pytest.raises(LoomError) as raised:
        weave("toy", "any", library)
    assert str(raised.value).startswith("templates/architectures/toy.toml:4: ") and message in str(raised.value)


def test_a_title_that_turns_the_direction_of_reading_is_refused():
    with pytest.raises(LoomError, match=r"toy.toml:1: title is 'Toy.u202e', not one line"):
        woven("", SELECTED.replace("Toy", "Toy\\u202e"))


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


UNREAD = """
[hf.unread]
bound = { select = "model/bound" }
act = { value = "silu", select = "another act" }
"""
EXPORT = """
[hf.export]
pad = {}
scaling = { kind = "default" }
"""


def test_a_setting_that_no_fragment_reads_must_be_null_or_of_a_value():
    said = 'yield "norm_bias", True, "model/no_bias"\n    yield "bound", None, "model/bound"\n'
    assert f'{said}    yield "act", "silu", "another act"\n' in woven(UNREAD)
    assert woven('[hf.unread]\nnorm_bias = { value = false, select = "model/norm" }\n') == woven("")
    assert woven(f'{UNREAD}[hf.settings]\nact = "gelu"\n').count('"act"') == 1


def test_a_setting_that_a_fragment_reads_into_a_field_may_have_any_value():
    reader = LAYER.replace('"num_heads", "heads"', '"bound", "heads"')
    selected = SELECTED.replace('"model/turn"', '"model/turn", "model/layer"')
    library = Library(
        files(FRAGMENTS | {"model/layer": reader}) | {"templates/architectures/toy.toml": selected + UNREAD}
    )
    text = weave("toy", "any", library).files["model.py"]
    assert 'yield "bound", "heads"\n' in text and '"bound", None' not in text and '"act", "silu"' in text


def test_a_setting_that_no_fragment_reads_stands_after_the_fragments_of_its_file():
    library = Library(
        files(FRAGMENTS)
        | {"templates/architectures/base.toml": SELECTED.replace(', "model/norm"', "") + UNREAD}
        | {"templates/architectures/toy.toml": ON_TOP + 'fragments = ["model/norm"]\n'}
    )
    text = weave("toy", "any", library).files["model.py"]
    assert text.index('yield "act"') < text.index('yield "norm_bias"')


def test_an_exported_file_says_more():
    model = FRAGMENTS["model/model"].replace(
        'point("hf.complete", hf)', 'point("hf.complete", hf)\n            point("hf.export", hf)'
    )
    library = Library(
        files(FRAGMENTS | {"model/model": model}) | {"templates/architectures/toy.toml": SELECTED + EXPORT}
    )
    text = weave("toy", "any", library).files["model.py"]
    assert 'hf["pad"] = None\n    hf["scaling"] = {"kind": "default"}\n' in text
