"""Where a run's time went, in its report."""

import html

from generator.language import requires, splice
from generator.language.roles import draw_charts

requires("report/report", "goodput")


def draw_shares(shares: dict[str, float]) -> str:
    """Returns a bar for each part of the time; nothing before the first evaluation or checkpoint."""
    bars = (
        f'<div>{html.escape(part.removeprefix("goodput/"))}<b style="width:{share:.1%}"></b>{share:.1%}</div>'
        for part, share in shares.items()
    )
    return f'<h2>Where the time of this start went</h2><div class="shares">{"".join(bars)}</div>' if shares else ""


@splice("Report.charts")
def _(self, results):
    times = {name: curve for name, curve in self.curves.items() if name.startswith("goodput/")}
    results = draw_charts({name: curve for name, curve in self.curves.items() if name not in times})
    results += draw_shares({name: curve.last[1] for name, curve in times.items()})


@splice("test_report.metrics", optional=True)
def _(recorded, page):
    for part in [part for part in recorded if part.startswith("goodput/")]:
        share = recorded.pop(part)[-1][1]
        assert f"{part.removeprefix('goodput/')}{share:.1%}" in page.text
