"""What an architecture states: `[hf]`, over what fragments say of checkpoints, and `[order]`, of splices at a point."""

from __future__ import annotations

import pytest
from miniature import files, with_imports

from generator.errors import LoomError
from generator.language.fragment import parse_fragment
from generator.recipe.library import Library
from generator.recipe.rows import check_rows
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
            point("hf.defaults", hf)
            point("hf.complete", hf)
            point("hf.export", hf)
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

    @splice("hf.complete")
    def _(hf):
        hf["bias"] = hf.get("act")
'''
SELECTED = 'title = "Toy"\nfragments = ["model/model", "model/norm", "model/turn"]\n'
WITH_LAYER = SELECTED.replace('"model/turn"', '"model/turn", "model/layer"')
BASE = SELECTED + '[hf.tensors]\n"norm.bias" = ["b", "d -> (d)"]\n'
ON_TOP = 'base = "base"\ntitle = "On top"\n'


def woven(stated: str, architecture: str = SELECTED, base: str = BASE, layer: str = LAYER) -> str:
    architectures = {
        "templates/architectures/base.toml": base,
        "templates/architectures/toy.toml": architecture + stated,
    }
    library = Library(files(FRAGMENTS | {"model/layer": layer}) | architectures)
    return weave("toy", "any", library).files["model.py"].partition('"""\n')[2]


def test_tensors_have_the_names_and_layouts_of_the_architecture():
    text = woven('[hf.tensors]\n"norm.scale" = "ln.weight"\n"norm.bias" = ["ln.bias", "d -> d 1"]\n')
    assert 'yield "norm.scale", "ln.weight", "d -> d"\n' in text
    assert 'yield "norm.bias", "ln.bias", "d -> d 1"\n' in text


def test_settings_and_defaults_stand_in_place_of_what_a_fragment_says():
    """What no fragment says comes first, before null is dropped; what a fragment computes is for null alone."""
    text = woven("[hf.settings]\nnorm_bias = false\n[hf.defaults]\nnorm_bias = false\nbias = 1\n")
    assert 'yield "norm_bias", False, "model/no_bias"\n' in text
    assert 'hf = {"norm_bias": False} | hf\n    hf.setdefault("norm_bias", hf.get("bias", 1))\n    return hf\n' in text
    text = woven('[hf.settings]\nact = "relu2"\n[hf.defaults]\nact = "relu2"\n', WITH_LAYER)
    assert 'yield "act", "relu2", "fragments for another act"\n    yield "norm_bias"' in text
    assert 'hf = {"act": "relu2"} | hf\n    hf.setdefault("norm_bias"' in text
    assert 'hf["bias"] = hf.get("act")' in text


def test_a_default_that_nothing_reads_or_that_is_taken_back_is_not_there():
    text = woven("[hf.defaults]\nstripes = 3\nnorm_bias = false\n")
    assert "stripes" not in text and 'hf = {"norm_bias": False} | hf' in text
    assert "False} | hf" not in woven("[hf.defaults]\nnorm_bias = {}\n")


def test_a_setting_has_another_name_wherever_fragments_speak_of_it():
    text = woven('[hf.names]\nnorm_bias = "use_bias"\n[hf.defaults]\nuse_bias = false\n')
    assert 'hf = {"use_bias": False} | hf' in text and '"use_bias", True' in text and "norm_bias" not in text
    same = LAYER.replace('"hidden_size", "width"', '"width", "width"')  # a field of Config keeps its name
    assert 'yield "size", "width"\n' in woven('[hf.names]\nwidth = "size"\n', WITH_LAYER, layer=same)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '"layers.{}.q", "d n -> n e"',
            "'d n -> n e' is not a layout of a tensor\n  Write one like d n h -> (n h) d: ",
        ),
        ('"layers.{}.q", "d n h -> (d h) n"', "'d n h -> (d h) n' is not a layout of a tensor"),
        ('"layers.{}.q r", "d -> d"', "'layers.{}.q r' cannot be the name of a tensor"),
        ('"layers.{}.q", "d > d"', "query.kernel has no layout in checkpoints\n  Write yield"),
        ('"layers.{}.q"', "query.kernel has no layout in checkpoints"),
        ('"layers.q", "d -> d"', "layers.q is the same tensor in each layer"),
    ],
)
def test_rows_of_tensors_in_fragments(row, message):
    text = with_imports(f'@splice("hf.layer_tensors")\ndef _():\n    yield "query.kernel", {row}\n')
    (splice,) = parse_fragment("fragments/model/layer.py", text).splices
    with pytest.raises(LoomError) as raised:
        check_rows(splice)
    assert str(raised.value).startswith(f"fragments/model/layer.py:3: {message}")


def test_rows_of_fragments_are_checked_when_they_are_woven():
    with pytest.raises(LoomError, match="is not a layout of a tensor"):
        woven("", WITH_LAYER, layer=LAYER.replace("d n h -> (n h) d", "d n h -> (n h) e"))


def test_a_base_is_built_on():
    text = woven('[hf.tensors]\n"norm.scale" = "s"\n', ON_TOP)
    assert '"norm.scale", "s", "d -> d"' in text and '"norm.bias", "b", "d -> (d)"' in text
    assert "norm" not in woven("", ON_TOP + 'without = ["model/norm"]\n')  # nor is what the base said of it missed


QUERY = '[hf.tensors]\n"query.kernel" = '


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ('[hf.tensors]\n"norm.scales" = "x"', "a parameter 'norm.scales'\n  Did you mean norm.scale or norm.bias?"),
        ('[hf.names]\nnorm_bais = "x"', "a setting of config.json 'norm_bais'\n  Did you mean norm_bias"),
        ('[hf.names]\nfoo = "x"', "'foo'\n  There is act, bias, hidden_size, norm_bias, num_heads."),
        ('[hf.tensors]\n"norm.scale" = ["a", "b", "c"]', "norm.scale is a list, not a list of 2"),
        ('[hf.tensors]\n"norm.scale" = 1', "hf.tensors.norm.scale is 1, not a string or a list"),
        (QUERY + '["layers.{}.q", "d n h -> q r s"]', "'d n h -> q r s' is not a layout of a tensor\n  Write one"),
        (QUERY + '["layers.{}.q", "nonsense"]', "'nonsense' is not a layout of a tensor"),
        (
            QUERY + '["layers.{}.q", "d n h -> (h n) d"]',
            "is not a layout of a tensor",
        ),  # a copy: not the parameter itself
        (QUERY + '["layers.{}.q", "d n -> n d"]', "layers.{}.q has 1 {} and 'd n -> n d' 2 axes"),
        (QUERY + '""', "'' cannot be the name of a tensor\n  Write one like layers.{}.q.weight"),
        (QUERY + '"layers.{x}.q"', "cannot be the name of a tensor"),
        (QUERY + '"layers.{}.q\\u202e"', "'layers.{}.q\\u202e' cannot be the name of a tensor"),
        (QUERY + '"q"', "q has 0 {} and 'd n h -> (n h) d' 3 axes"),
        (QUERY + '"layers.{}.{}.q"', "layers.{}.{}.q has 2 {} and 'd n h -> (n h) d' 3 axes"),
        (QUERY + '"layers.{}.k.weight"', "layers.{}.k.weight would be key.kernel and query.kernel\n  Give query."),
        ('[hf.names]\nhidden_size = ""', "'' cannot be the name of hidden_size"),
        ('[hf.names]\nhidden_size = "num_heads"', "num_heads would be heads and width\n  Give hidden_size a name"),
        ('[hf.settings]\nmodel_type = "x"', "model_type is not one of the settings\n  Write it above the tables"),
        ("[hf.settings]\nact = nan", "act is nan, which a config.json cannot contain"),
        ("[hf.defaults]\nact = [1, inf]", "act is [1, inf], which a config.json cannot contain"),
        ('[hf.unread]\nact = { value = nan, select = "x" }', "act is nan, which a config.json cannot contain"),
        ("[hf.unread]\nact = { value = 1 }", "hf.unread.act.select is missing\n  Add select, a string"),
        ("[hf.export]\nact = inf", "act is inf, which a config.json cannot contain"),
        ('[hf.defaults]\nhidden_size = "x"', "width is 'x', and model/layer declares it as int"),
        ('[order]\n"model.x" = ["model/norm"]', "the order at 'model.x' is not one of two fragments or more"),
        ('[order]\n"model.x" = ["model/norm", "model/turn", "model/norm"]', "each named once"),
        ('[order]\n"model.x" = ["model/norm", "model/model"]', "model/model has no splice for the point 'model.x'\n"),
    ],
)
def test_what_no_checkpoint_can_be_is_refused(stated, message):
    with pytest.raises(LoomError) as raised:
        woven(stated + "\n", WITH_LAYER)
    assert str(raised.value).startswith("templates/architectures/toy.toml:4: ") and message in str(raised.value)


def test_a_table_that_is_none_and_a_title_that_turns_the_direction_of_reading():
    with pytest.raises(LoomError, match=r"toy.toml:3: unknown key hf.tensor\n"):
        woven('[hf.tensor]\n"norm.scale" = "x"\n')
    with pytest.raises(LoomError, match=r"toy.toml:1: title is 'Toy.u202e', not one line"):
        woven("", SELECTED.replace("Toy", "Toy\\u202e"))


def test_the_order_of_an_architecture_is_above_that_of_fragments():
    assert "x = x / 2\n    x = -x\n" in woven("")
    assert "x = -x\n    x = x / 2\n" in woven('[order]\n"model.x" = ["model/turn", "model/norm"]\n')


UNREAD = """
[hf.unread]
bound = { select = "model/bound" }
act = { value = "silu", select = "another act" }
"""


def test_a_setting_that_no_fragment_reads_must_be_null_or_of_a_value():
    stated = 'yield "norm_bias", True, "model/no_bias"\n    yield "bound", None, "model/bound"\n'
    assert f'{stated}    yield "act", "silu", "another act"\n' in woven(UNREAD)
    assert woven('[hf.unread]\nnorm_bias = { value = false, select = "model/norm" }\n') == woven("")
    assert woven(f'{UNREAD}[hf.settings]\nact = "gelu"\n').count('"act"') == 1
    # one that a fragment reads into a field may have any
    text = woven(UNREAD, WITH_LAYER, layer=LAYER.replace('"num_heads", "heads"', '"bound", "heads"'))
    assert 'yield "bound", "heads"\n' in text and '"bound", None' not in text and '"act", "silu"' in text
    # it stands after the fragments of its file
    text = woven('fragments = ["model/norm"]\n', ON_TOP, base=SELECTED.replace(', "model/norm"', "") + UNREAD)
    assert text.index('yield "act"') < text.index('yield "norm_bias"')


def test_an_exported_file_says_more():
    text = woven('[hf.export]\npad = {}\nscaling = { kind = "default" }\n')
    assert 'hf["pad"] = None\n    hf["scaling"] = {"kind": "default"}\n' in text
