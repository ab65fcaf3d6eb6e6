"""Chats in JSON, Parquet and Arrow files."""

import json
from typing import Any

from generator.language import proceed, requires, splice
from generator.language.roles import chat_fields, import_pyarrow, text_or_chat

requires("columns", "chat_rows")


def chat_columns(schema: Any, field: str) -> list[str]:
    """Returns the columns that make the rows of a schema of Arrow chats; [] if they are texts."""
    kind = str(schema.field(field).type) if field in schema.names else ""
    has_list = kind.startswith(("list<", "large_list<")) and ": struct<" in kind
    return chat_fields(schema.names, field, has_list)


def as_chats(table: Any, names: list[str], field: str) -> Any:
    """Returns a column of chats, null where the first of these columns is."""
    pyarrow = import_pyarrow("a chat")
    table = table.select(names).rename_columns(["messages" if name == field else name for name in names])
    chats = [
        pyarrow.StructArray.from_arrays(batch.columns, names=table.column_names, mask=batch.column(0).is_null())
        for batch in table.to_batches()
    ]
    return pyarrow.chunked_array(chats, type=pyarrow.struct(list(table.schema)))


@splice("open_json.rows")
def _(content, field, rows):
    content_rows = json.loads(content.read(0, content.size))
    rows = [row if isinstance(row, str) else text_or_chat(row, field) for row in content_rows]


@splice("open_parquet.field")
def _(schema, field):
    if not chat_columns(schema, field):
        proceed()


@splice("read_row_group.texts")
def _(file, group, field, texts):
    if names := chat_columns(file.schema_arrow, field):
        texts = as_chats(file.read_row_group(group, columns=names), names, field).drop_null()
    else:
        proceed()


@splice("open_arrow.column")
def _(table, field, column):
    if names := chat_columns(table.schema, field):
        column = as_chats(table, names, field)
    else:
        proceed()
