"""What the TOML files of architectures, targets and packages hold."""

from __future__ import annotations

from keyword import kwlist
from typing import Annotated, Any

import msgspec

WORDS = {  # pattern of a string -> what it is: as it stands in code, in headings and in paths
    r'^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"\\]*\Z': "one line without quotes and backslashes",
    r"^[\w.-]+\Z": "a name of letters, digits, _, - and .",
    rf"^(?!({'|'.join(kwlist)})\Z)[A-Za-z_][A-Za-z0-9_]*\Z": "a name in Python",
    r"^([A-Za-z_][A-Za-z0-9_]*)?\Z": "a name in Python, or nothing",
    r"^(?!gen\.)(\w[\w.-]*/)*\w[\w.-]*\Z": "a path inside the package",
    r"^([a-z_]\w*/|(?!(config|__init__)\.py\Z)[a-z_]\w*\.py)\Z": "FILE.py, not config.py or __init__.py, or FOLDER/",
}
_LINE, _NAME, _IDENTIFIER, _IDENTIFIER_OR_NONE, _PATH, _PLACE = WORDS
Line = Annotated[str, msgspec.Meta(pattern=_LINE)]
Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
Identifier = Annotated[str, msgspec.Meta(pattern=_IDENTIFIER)]
Output = Annotated[str, msgspec.Meta(pattern=_PATH)]
Names = tuple[str, ...]
Presets = dict[Name, dict[str, Any]]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that has these keys and no others; a key without a default must be there."""


class KindTable(Table, frozen=True, kw_only=True):
    """`[kinds.NAME]`: a kind of layer."""

    where: str = ""
    fragments: Names = ()
    absent: Names = ()
    init: dict[Identifier, str] = {}
    call: dict[Identifier, str] = {}


class GroupTable(Table, frozen=True, kw_only=True):
    """`[[layers]]`: layers that are scanned together."""

    pattern: tuple[str, ...]
    name: Annotated[str, msgspec.Meta(pattern=_IDENTIFIER_OR_NONE)] = ""
    count: str = ""


class UnreadTable(Table, frozen=True, kw_only=True, omit_defaults=True):
    """`[hf.unread]` NAME: the value that a setting must have, or null, and what to select for another one."""

    value: Any = None
    select: Line


class CheckpointTable(Table, frozen=True, kw_only=True):
    """`[hf]`: what a family's checkpoints and their config.json say otherwise than fragments do."""

    tensors: dict[str, str | tuple[str, str]] = {}
    names: dict[str, str] = {}
    settings: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    unread: dict[str, UnreadTable] = {}
    export: dict[str, Any] = {}


class RuleTable(Table, frozen=True, kw_only=True):
    """`[[structure]]`: what a checkpoint chooses by a setting."""

    setting: str | Names
    value: Any = msgspec.UNSET
    given: bool | None = None
    without: Names = ()
    fragments: Names = ()
    settings: dict[str, Any] = {}
    fills: dict[str, str] = {}
    layers: tuple[GroupTable, ...] = ()
    kinds: dict[Identifier, KindTable] = {}
    presets: Presets = {}
    hf: CheckpointTable = CheckpointTable()


class NeutralTable(Table, frozen=True, kw_only=True):
    """`[[neutral]]`: settings of checkpoints that change nothing."""

    settings: Names
    where: str = "True"


class ChangeTable(Table, frozen=True, kw_only=True):
    """`[targets.NAME]`: what an architecture changes for a target."""

    fragments: Names = ()
    without: Names = ()


class PartTable(Table, frozen=True, kw_only=True):
    """`[parts.NAME]`: what a package can do besides training, where it is asked for.

    Attributes:
        files: those of targets' templates that go with it.
    """

    title: Line
    fragments: Annotated[Names, msgspec.Meta(min_length=1)]
    needs: Names = ()
    documentation: dict[str, str] = {}
    extras: dict[Name, tuple[Line, ...]] = {}
    templates: dict[Output, str] = {}
    files: tuple[Output, ...] = ()


class ConfigTable(Table, frozen=True, kw_only=True):
    """`[config]`: the docstring of Config, and headings over its fields by folder of the fragment."""

    documentation: Line
    groups: dict[str, Line] = {}


class File(Table, frozen=True, kw_only=True):
    """What each of the files may hold."""

    fragments: Names = ()
    settings: dict[str, Any] = {}


class Architecture(File, frozen=True, kw_only=True):
    """`templates/architectures/NAME.toml`."""

    title: Line
    base: str = ""
    source: Line = ""
    model_type: str = ""
    reference: str = ""
    without: Names = ()
    without_presets: Names = ()
    presets: Presets = {}
    layers: tuple[GroupTable, ...] = ()
    kinds: dict[Identifier, KindTable] = {}
    targets: dict[str, ChangeTable] = {}
    hf: CheckpointTable = CheckpointTable()
    order: dict[str, Names] = {}
    structure: tuple[RuleTable, ...] = ()
    neutral: tuple[NeutralTable, ...] = ()


class Target(File, frozen=True, kw_only=True):
    """`targets/NAME/target.toml`."""

    title: Line
    presets: Presets = {}
    requirements: dict[str, Line] = {}
    extras: dict[Name, tuple[Line, ...]] = {}
    templates: dict[Output, str] = {}


class Package(File, frozen=True, kw_only=True):
    """`templates/package.toml`."""

    exports: Annotated[Names, msgspec.Meta(min_length=1)]
    folders: dict[str, Annotated[str, msgspec.Meta(pattern=_PLACE)]]
    documentation: dict[str, str]
    config: ConfigTable
    parts: dict[Name, PartTable] = {}
    requirements: dict[str, Line] = {}
    extras: dict[Name, tuple[Line, ...]] = {}
    templates: dict[Output, str] = {}
    structure: tuple[RuleTable, ...] = ()
    neutral: tuple[NeutralTable, ...] = ()


class Entry(Table, frozen=True, kw_only=True):
    """`[[package]]` of packages.toml."""

    architecture: Identifier
    target: Identifier
    parts: Names = ()
    by_hand: bool = False
    committed: bool = True


class List(Table, frozen=True, kw_only=True):
    """packages.toml: the packages that are kept, and the paths beside and in them that are not gen's."""

    package: tuple[Entry, ...] = ()
    own: Names = ()


class Settings(Table, frozen=True, kw_only=True):
    """gen.toml: the folder of the packages, and the versions of gen that a project is for."""

    generated: Line = "generated"
    requires: str = ""


TABLES: dict[str, tuple[str, type[Table]]] = {  # key -> what its tables are
    "layers": ("group of layers", GroupTable),
    "kinds": ("kind of layer", KindTable),
    "structure": ("rule", RuleTable),
    "neutral": ("neutral table", NeutralTable),
    "targets": ("change for a target", ChangeTable),
    "hf": ("table of checkpoints", CheckpointTable),
    "unread": ("setting that no fragment reads", UnreadTable),
    "parts": ("part", PartTable),
    "config": ("config", ConfigTable),
    "package": ("package", Entry),
}
