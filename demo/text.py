"""Text for the demo: functions of Python's standard library, without comments and docstrings, and a tokenizer of them.

python demo/text.py FOLDER     writes train.jsonl, held_out.jsonl (one file in 20) and tokenizer.json
"""

import ast
import json
import sys
import sysconfig
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer

folder, library = Path(sys.argv[1]), Path(sysconfig.get_path("stdlib"))
folder.mkdir(parents=True, exist_ok=True)
texts = {"train": [], "held_out": []}
for i, path in enumerate(sorted(library.glob("*.py"))):
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef) and (code := node.body[ast.get_docstring(node) is not None :]):
            node.body = code
            texts["train" if i % 20 else "held_out"].append(ast.unparse(node))
for name, functions in texts.items():
    (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in functions))
tokenizer = ByteLevelBPETokenizer()
tokenizer.train_from_iterator(texts["train"], vocab_size=2048, special_tokens=["</s>"], show_progress=False)
tokenizer.save(str(folder / "tokenizer.json"))
