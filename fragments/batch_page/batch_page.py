"""A page that shows a batch: each token coloured by its weight in the loss."""

import html

import numpy as np

from generator.language.roles import AnyTokenizer, token_bytes

STYLE = """
body { font: 14px/1.7 ui-monospace, monospace; margin: 2em; max-width: 100ch; color: #666 }
section { border: 1px solid #ccc; margin: 0 0 1em; padding: .5em; white-space: pre-wrap; overflow-wrap: anywhere }
p { border-left: 4px solid #99c; margin: 0 0 .5em; padding-left: .5em }
span:hover { outline: 1px solid #333 }
.loss { color: #000; background: rgb(60 180 90 / calc(15% + 50% * min(var(--weight), 1))) }
"""


def token_span(tokenizer: AnyTokenizer, token: int, weight: float) -> str:
    text = html.escape(token_bytes(tokenizer, token).decode(errors="replace")).replace("\n", "↵\n")
    look = f' class="loss" style="--weight: {weight:g}"' if weight else ""
    return f'<span{look} title="token {token}, weight {weight:g}">{text}</span>'


def batch_page(rows: list[dict[str, np.ndarray]], tokenizer: AnyTokenizer, title: str) -> str:
    """Returns a page of HTML: a box for each sequence, and in it a paragraph for each segment."""
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    page += f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>\n"
    for number, row in enumerate(rows):
        ids, weights = row["segment_ids"], row["weights"]
        page += f"<h2>sequence {number}: {np.sum(ids > 0):,} tokens in {ids.max()} segments, "
        page += f"{np.sum(weights > 0):,} with a loss, {np.sum(ids == 0):,} of padding</h2><section>"
        for segment in range(1, ids.max() + 1):
            within = ids == segment
            # the first token is no target; each other one has the weight of its prediction
            tokens, weights_of_page = [row["tokens"][within][0], *row["targets"][within]], [0, *weights[within]]
            spans = (
                token_span(tokenizer, int(i), float(weight)) for i, weight in zip(tokens, weights_of_page, strict=True)
            )
            page += f"<p>{''.join(spans)}</p>"
        page += "</section>\n"
    return page
