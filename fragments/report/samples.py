"""Samples of a run that learns from rewards, in its report."""

import contextlib
import html
import json
from typing import Any

from etils import epath

from generator.language import requires, splice
from generator.language.roles import NO_RECORD

requires("report/report", "rollouts/rollouts")

TAIL = 2**20  # bytes at the end of completions.jsonl that are read
SHOWN = 8  # completions
LENGTH = 2_000  # characters of a text


def last_group(path: epath.Path, size: int) -> list[dict[str, Any]]:
    """Returns the records of the last round in completions.jsonl: completions of one prompt, `size` at most."""
    records = []
    with open(path, "rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - TAIL))
        for line in file:
            with contextlib.suppress(*NO_RECORD):  # such as the rest of a line
                records.append(json.loads(line))
    return [record for record in records if record["round"] == records[-1]["round"]][-size:]


def shown_text(prompt: str | list[dict[str, Any]]) -> str:
    """Returns a text, or messages with their roles, as HTML."""
    if not isinstance(prompt, str):
        prompt = "\n\n".join(f"{x['role']}: {x.get('content') or json.dumps(x.get('tool_calls'))}" for x in prompt)
    return html.escape(prompt if len(prompt) <= LENGTH else f"{prompt[:LENGTH]} ... {len(prompt):,} characters")


def draw_samples(records: list[dict[str, Any]]) -> str:
    """Returns a prompt, and what the model made of it, with its rewards; nothing before the first round is written."""
    if not records:
        return ""
    boxes = f"<p>prompt</p><pre>{shown_text(records[0]['prompt'])}</pre>"
    for record in records[:SHOWN]:
        reward = "no reward" if record["reward"] is None else f"reward {record['reward']:.4g}"
        boxes += f"<p>{reward}</p><pre>{shown_text(record['completion'])}</pre>"
    return f'<h2>Samples of rollout {html.escape(str(records[0]["round"]))}</h2><div class="samples">{boxes}</div>'


@splice("Report.titles")
def _(titles):
    titles["eval/reward"] = "held-out reward"


@splice("Report.results")
def _(self, results):
    path = self.path.with_name("completions.jsonl")
    with contextlib.suppress(*NO_RECORD, FileNotFoundError):
        results += draw_samples(last_group(path, self.config.group_size))
