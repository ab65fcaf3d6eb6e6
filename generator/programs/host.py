"""Changed statements that no traced program runs: of what they do, jaxprs say nothing."""

from __future__ import annotations

from generator.programs.bytecode import Statement, changed, statements
from generator.programs.conditions import decides
from generator.programs.facts import Version
from generator.programs.verdicts import HOST, UNDECIDED, Facts, Finding

MOST = 8  # places that a detail names
# what a machine says of itself, which is traced on another
MACHINE = {"default_backend", "platform", "device_kind", "memory_stats", "process_count", "process_index", "environ"}


def untraced(paths: list[str], before: Version, after: Version, facts: tuple[Facts, Facts]) -> list[Finding]:
    """The finding for changed files of a package, where a statement of them is in no traced program."""
    found: dict[str, None] = {}
    if any("undecided" in side for side in facts):
        return []
    runs = [_Ran(version, side) for version, side in zip((before, after), facts, strict=True)]
    for path in paths:
        sides = [
            version.files[path].decode("utf-8", "replace") if path in version.files else ""
            for version in (before, after)
        ]
        try:
            pair = changed(sides[0], sides[1])
        except (SyntaxError, ValueError):
            return [Finding(HOST, UNDECIDED, f"{path} is no Python")]
        for ran, side, other in zip(runs, pair, pair[::-1], strict=True):
            for statement in side:
                if not ran.covers(path, statement) or _header_differs(statement, other):
                    found.setdefault(f"{path} {statement.owner or ', '.join(sorted(statement.binds)) or 'imports'}")
    if not found:
        return []
    names = list(found)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return [Finding(HOST, UNDECIDED, f"no traced program runs: {'; '.join(names[:MOST])}{more}")]


def _header_differs(statement: Statement, other: list[Statement]) -> bool:
    """Whether a definition gives those who call it something else, who need not be traced, though its body is."""
    name = statement.kind, statement.owner, statement.binds
    return any((it.kind, it.owner, it.binds) == name and it.header_differs(statement) for it in other)


class _Ran:
    """What ran of a version while it was traced."""

    def __init__(self, version: Version, facts: Facts):
        self.name = version.name
        self.places = {tuple(place) for place in facts.get("ran", [])}
        self.classes = set(facts.get("interface", {}).get("classes", []))
        self.texts = {path: data.decode("utf-8", "replace") for path, data in version.program.items()}
        self.read: set[str] = set()
        gets: dict[bool, set[str]] = {True: set(), False: set()}  # attributes that statements take: did they run?
        self.mentions: dict[str, int] = {}
        for path, text in self.texts.items():
            for statement in statements(text):
                for name in statement.reads:
                    self.mentions[name] = self.mentions.get(name, 0) + 1
                if self._ran(path, statement):
                    self.read |= statement.reads
                if statement.runs:
                    gets[self._ran(path, statement)] |= statement.gets
        self.elsewhere = gets[False] - gets[True]

    def _ran(self, path: str, statement: Statement) -> bool:
        return (f"{self.name}/{path}", statement.lines.start) in self.places

    def _decides(self, path: str, statement: Statement) -> bool:
        noted = frozenset(place[1:] for place in self.places if place[0] == f"{self.name}/{path}")
        return decides(self.texts[path], noted, statement.lines.start)

    def covers(self, path: str, statement: Statement) -> bool:
        """Whether what the statement does is in the programs, or in the interface."""
        if statement.runs:
            parts = {(f"{self.name}/{path}", *place) for place in statement.branches}
            if not (self._ran(path, statement) and parts <= self.places) or statement.reads & MACHINE:
                return False
            # an attribute may be read only where nothing was traced
            return not statement.sets & self.elsewhere and not self._decides(path, statement)
        if statement.kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
            inside = ((f"{self.name}/{path}", line) in self.places for line in statement.lines)
            return any(inside) or bool(statement.binds & self.classes)
        if statement.owner in self.classes or (path == "config.py" and statement.binds == {"PRESETS"}):
            return True  # fields and presets are compared one by one
        if path == "__init__.py" and (statement.binds == {"__all__"} or statement.kind == "ImportFrom"):
            return True  # exports
        if statement.kind in ("Import", "ImportFrom"):  # one that nobody mentions does nothing
            return all(name in self.read or name not in self.mentions for name in statement.binds)
        return bool(statement.binds) and statement.binds <= self.read
