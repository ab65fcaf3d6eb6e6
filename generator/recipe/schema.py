"""The schema of the TOML files of architectures, targets and packages."""

from __future__ import annotations

from keyword import kwlist
from types import MappingProxyType
from typing import Annotated, Any

from generator.recipe.typed import Shape, TomlTable

ALL = "all"  # instead of the names of parts
LEFT_OUT = "-"  # before the name of a part that a package does not have: -compile
NOT_GIVEN: Any = object()  # the default of a key that may have any value
EMPTY: Any = MappingProxyType({})

# patterns of text that is copied into code, headings and paths
_LINE = r'[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"\\]*'
_MODULE = r"[a-z_]\w*/|(?!__init__\.py\Z)[a-z_]\w*\.py"
_IDENTIFIER = rf"(?!({'|'.join(kwlist)})\Z)[A-Za-z_][A-Za-z0-9_]*"
Line = Annotated[str, Shape("one line without quotes and backslashes", _LINE)]
Name = Annotated[str, Shape("a name of letters, digits, _, - and .", r"[\w.-]+")]
Identifier = Annotated[str, Shape("a name in Python", _IDENTIFIER)]
IdentifierOrNone = Annotated[str, Shape("a name in Python, or nothing", r"([A-Za-z_][A-Za-z0-9_]*)?")]
Output = Annotated[str, Shape("a path inside the package", r"(?!gen\.)(\w[\w.-]*/)*\w[\w.-]*")]
Place = Annotated[str, Shape("FILE.py, not __init__.py, or FOLDER/", _MODULE)]
Names = tuple[str, ...]
SomeNames = Annotated[Names, Shape("a list of one or more")]
Presets = dict[Name, dict[str, Any]]


class KindTable(TomlTable):
    """`[kinds.NAME]`: a kind of layer."""

    where: str = ""
    fragments: Names = ()
    absent: Names = ()
    init: dict[Identifier, str] = EMPTY
    call: dict[Identifier, str] = EMPTY


class GroupTable(TomlTable):
    """`[[layers]]`: layers that are scanned together."""

    pattern: tuple[str, ...]
    name: IdentifierOrNone = ""
    count: str = ""


class UnreadTable(TomlTable):
    """`[hf.unread]` NAME: the value that a setting must have unless it is null, and what to select for another one."""

    value: Any = None
    select: Line


class CheckpointTable(TomlTable):
    """`[hf]`: names and settings of a family's checkpoints that differ from those in fragments."""

    tensors: dict[str, str | tuple[str, str]] = EMPTY
    names: dict[str, str] = EMPTY
    settings: dict[str, Any] = EMPTY
    defaults: dict[str, Any] = EMPTY
    unread: dict[str, UnreadTable] = EMPTY
    export: dict[str, Any] = EMPTY


class RuleTable(TomlTable):
    """`[[structure]]`: what to select by a setting of a checkpoint."""

    setting: str | Names
    value: Any = NOT_GIVEN
    given: bool | None = None
    without: Names = ()
    fragments: Names = ()
    settings: dict[str, Any] = EMPTY
    fills: dict[str, str] = EMPTY
    layers: tuple[GroupTable, ...] = ()
    kinds: dict[Identifier, KindTable] = EMPTY
    presets: Presets = EMPTY
    hf: CheckpointTable = CheckpointTable()


class NeutralTable(TomlTable):
    """`[[neutral]]`: settings of checkpoints that do not change the computation."""

    settings: Names
    where: str = "True"


class ChangeTable(TomlTable):
    """`[targets.NAME]`: changes of an architecture for one target."""

    fragments: Names = ()
    without: Names = ()


class PartTable(TomlTable):
    """`[parts.NAME]`: something that a package can do besides training.

    Attributes:
        aliases: what people may call it, for the error of an unknown part.
        targets: that packages with the part can be for; none for all.
        requires: fragment, or "one or other", that every layer of a model with the part must have -> what it gives.
        requires_some: the same, of what some layer must have.
        also: point -> point of the part: a fragment that splices at the first must splice at the second too.
        choice: what the part decides, if it is one of several ways: a package has one at most, and "all" has none.
        roots: public names, as in the package file.
        files: outputs of targets' templates that only packages with the part have.
    """

    title: Line
    fragments: SomeNames
    targets: Names = ()
    aliases: Names = ()
    needs: Names = ()
    requires: dict[str, Line] = EMPTY
    requires_some: dict[str, Line] = EMPTY
    also: dict[str, Line] = EMPTY
    choice: Line = ""
    settings: dict[str, Any] = EMPTY
    documentation: dict[str, str] = EMPTY
    extras: dict[Name, tuple[Line, ...]] = EMPTY
    templates: dict[Output, str] = EMPTY
    roots: tuple[str, ...] = ()
    files: tuple[Output, ...] = ()


class ConfigTable(TomlTable):
    """`[config]`: the docstring of Config."""

    documentation: Line


class SourceToml(TomlTable):
    """Keys that all three kinds of file may have."""

    fragments: Names = ()
    settings: dict[str, Any] = EMPTY


class ArchitectureToml(SourceToml):
    """`templates/architectures/NAME.toml`."""

    title: Line
    base: str = ""
    source: Line = ""
    model_type: str = ""
    reference: str = ""
    without: Names = ()
    without_presets: Names = ()
    presets: Presets = EMPTY
    layers: tuple[GroupTable, ...] = ()
    kinds: dict[Identifier, KindTable] = EMPTY
    targets: dict[str, ChangeTable] = EMPTY
    hf: CheckpointTable = CheckpointTable()
    order: dict[str, Names] = EMPTY
    structure: tuple[RuleTable, ...] = ()
    neutral: tuple[NeutralTable, ...] = ()


class TargetToml(SourceToml):
    """`targets/NAME/target.toml`.

    Attributes:
        parts: those that packages have by default.
    """

    title: Line
    parts: Names = ()
    presets: Presets = EMPTY
    requirements: dict[str, Line] = EMPTY
    extras: dict[Name, tuple[Line, ...]] = EMPTY
    templates: dict[Output, str] = EMPTY


class HardwareTable(TomlTable):
    """`[hardware.NAME]` of recipes.toml: devices that a job is meant for.

    Attributes:
        topology: the chip, and the shape of a slice of TPUs as a compiler has it.
        flags: those of the compiler; none for those of the target.
    """

    devices: int
    topology: Line
    flags: tuple[Line, ...] = ()


class RecipeTable(TomlTable):
    """`[[recipe]]`: settings and further flags of presets on some hardware.

    Attributes:
        architectures: those that the recipe is for; none for all that have such a preset and no recipe of their own.
        parts: those that a package must have, since the settings belong to them.
        figures: what was measured, compiled or published.
    """

    hardware: str
    presets: SomeNames
    settings: dict[str, Any]
    figures: Line
    why: Line
    architectures: Names = ()
    parts: Names = ()
    flags: tuple[Line, ...] = ()


class RecipesToml(TomlTable):
    """`targets/NAME/recipes.toml`."""

    hardware: dict[Name, HardwareTable]
    recipe: tuple[RecipeTable, ...] = ()


class PackageToml(SourceToml):
    """`templates/package.toml`."""

    exports: SomeNames
    roots: tuple[str, ...] = ()  # public names that `__init__.py` does not import
    folders: dict[str, Place]
    documentation: dict[str, str]
    config: ConfigTable
    parts: dict[Name, PartTable] = EMPTY
    requirements: dict[str, Line] = EMPTY
    extras: dict[Name, tuple[Line, ...]] = EMPTY
    templates: dict[Output, str] = EMPTY
    structure: tuple[RuleTable, ...] = ()
    neutral: tuple[NeutralTable, ...] = ()


class Entry(TomlTable):
    """`[[package]]` of packages.toml."""

    architecture: Identifier
    target: Identifier
    parts: Names = ()
    by_hand: bool = False
    committed: bool = True


class PackageList(TomlTable):
    """packages.toml: the packages of a project, and the paths beside and in them that gen did not make."""

    package: tuple[Entry, ...] = ()
    own: Names = ()


class Settings(TomlTable):
    """gen.toml: the folder of the packages, and the versions of gen that may build them."""

    generated: Line = "generated"
    requires: str = ""
