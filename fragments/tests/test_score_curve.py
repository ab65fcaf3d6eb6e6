"""The plot of scores."""

import importlib
import json

from matplotlib.figure import Figure

from generator.language import requires

requires("score_curve")


def test_each_score_has_a_plot_of_its_own(tmp_path, monkeypatch):
    module = importlib.import_module("..plots", __package__)
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    (tmp_path / "metrics.jsonl").write_text('half a line\n{"step": 1, "train/loss": 2.0, "eval/loss": 3.0}\n')
    module.draw_scores(tmp_path / "metrics.jsonl", tmp_path / "scores.png")
    assert not figures
    with open(tmp_path / "metrics.jsonl", "a") as file:
        for step in 5, 6:
            file.write(json.dumps({"step": step, "eval/reward": step / 10, "eval/piqa/acc": 0.5}) + "\n")
    module.draw_scores(tmp_path / "metrics.jsonl", tmp_path / "scores.png")
    ((first, second),) = (figure.axes for figure in figures)
    drawn = {axes.get_ylabel(): [list(x) for x in axes.get_lines()[0].get_data()] for axes in (first, second)}
    assert drawn == {"piqa/acc": [[5, 6], [0.5, 0.5]], "reward": [[5, 6], [0.5, 0.6]]}
