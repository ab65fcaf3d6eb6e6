"""Sums of two digits as data for training: examples, of which a quarter is right, prompts, and what rewards answers.

python demo/sums.py DIR [--seed N]       writes examples.jsonl, prompts.jsonl and held_out.jsonl
python demo/sums.py DIR --ask URL        asks a server each sum of held_out.jsonl, and prints what it says
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
import urllib.error
import urllib.request
from pathlib import Path

PAIRS = list(itertools.product(range(5), repeat=2))


def right(prompt: str, completion: str, answer: str) -> float:
    """Rewards the right sum in the right form, and nothing else."""
    return float(completion == f"<{answer}>")


def examples(seed: int) -> list[dict[str, str]]:
    """Returns prompts with completions, a quarter of them right."""
    chance, rows = random.Random(seed), []
    for a, b in PAIRS * 200:
        wrong = chance.choice([f"<{chance.randrange(9)}>", f"{a + b}", f"<{a + b}", f"{a + b}>"])
        rows.append({"prompt": f"{a}+{b}=", "completion": f"<{a + b}>" if chance.random() < 0.25 else wrong})
    chance.shuffle(rows)
    return rows


def write(folder: Path, seed: int, held_out: int) -> None:
    """Writes the files; of the pairs, `held_out` are in the last file, and the others prompts."""
    sums = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in random.Random(0).sample(PAIRS, len(PAIRS))]
    folder.mkdir(parents=True, exist_ok=True)
    files = {"examples": examples(seed), "held_out": sums[:held_out], "prompts": sums[held_out:]}
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def ask(url: str, prompt: str) -> str:
    """Returns a server's likeliest completion; waits up to five minutes until it is there."""
    request = urllib.request.Request(f"{url}/v1/completions", headers={"Content-Type": "application/json"})
    request.data = json.dumps({"prompt": prompt, "max_tokens": 8, "temperature": 0}).encode()
    for _ in range(300):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["choices"][0]["text"]
        except urllib.error.URLError:
            time.sleep(1)
    raise SystemExit(f"{url} does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ask", metavar="URL")
    given = parser.parse_args()
    if not given.ask:
        return write(given.folder, given.seed, held_out=5)
    rows = [json.loads(line) for line in (given.folder / "held_out.jsonl").read_text().splitlines()]
    said = [ask(given.ask, row["prompt"]) for row in rows]
    for row, text in zip(rows, said, strict=True):
        print(row["prompt"], text)
    count = sum(right(row["prompt"], text, row["answer"]) for row, text in zip(rows, said, strict=True))
    print(f"{count:.0f} of {len(rows)} sums that were in no rollout are right")


if __name__ == "__main__":
    main()
