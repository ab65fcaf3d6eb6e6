"""The documents of tests, and a file of them."""

import json
from pathlib import Path

TEXTS = [f"document {i}: " + "ünï" * (i % 7) * (i % 11) for i in range(120)]  # 13 to 308 bytes


def write_jsonl(folder: Path, texts: list[str] = TEXTS) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "texts.jsonl"
    path.write_text("\n\n".join(json.dumps({"text": text, "n": i}) for i, text in enumerate(texts)) + "\n\n")
    return str(path)
