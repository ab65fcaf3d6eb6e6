"""Rows to try a package with: sums, as chats or as completions."""

from __future__ import annotations

import json
from pathlib import Path

SUMS = [(f"What is {a} + {b}?", f"{a} + {b} = {a + b}.") for a in range(2, 10) for b in range(2, 10)]
FILES = {"train.jsonl": SUMS[::2], "held_out.jsonl": SUMS[1::2]}


def write_example_rows(folder: Path, checkpoint: Path) -> list[Path]:
    """Writes the files of FILES that do not exist yet, and returns their paths.

    Args:
        checkpoint: the rows are chats if this folder has a template for them.
    """
    template, settings = checkpoint / "chat_template.jinja", checkpoint / "tokenizer_config.json"
    text = settings.read_text(encoding="utf-8", errors="replace") if settings.is_file() else ""
    is_chat, written = template.is_file() or '"chat_template"' in text, []
    for name, sums in FILES.items():
        if not (path := folder / name).exists():
            rows = [
                _make_chat(*texts) if is_chat else {"prompt": texts[0], "completion": f" {texts[1]}"} for texts in sums
            ]
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            written.append(path)
    return written


def _make_chat(question: str, answer: str) -> dict:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
