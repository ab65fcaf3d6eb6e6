"""Curves of a run's metrics, and charts of them: SVG in HTML, without scripts."""

import collections
import html
import math
import operator

POINTS = 1_000  # of a curve at most
SIZE = 2_000  # of the square that SVG stretches to the place of a chart

Point = tuple[int, float]  # a step and a value


def extremes(points: list[Point]) -> list[Point]:
    """Returns the first lowest and the last highest point, in the order of their steps."""
    value = operator.itemgetter(1)
    return sorted({min(points, key=value), max(reversed(points), key=value)})


class Curve:
    """A metric by step; once there are more than POINTS, the lowest and the highest value of equal stretches."""

    def __init__(self):
        self.points: list[Point] = []  # two of each stretch
        self.stretch = 2  # recorded points in each
        self.rest: list[Point] = []  # recorded since the last stretch

    def add(self, step: int, value: float) -> None:
        self.last = step, value
        self.rest.append(self.last)
        if len(self.rest) == self.stretch:
            self.points += extremes(self.rest)
            self.rest.clear()
        if len(self.points) >= POINTS:
            pairs = (self.points[i : i + 4] for i in range(0, len(self.points), 4))
            self.points = [point for pair in pairs for point in extremes(pair)]
            self.stretch *= 2

    def drawn(self) -> list[Point]:
        """Returns the points of a chart, the last recorded one among them."""
        points = self.points + (extremes(self.rest) if self.rest else [])
        return points if points[-1] == self.last else [*points, self.last]


def format_number(value: float) -> str:
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.4g}"


def ticks(low: float, high: float) -> list[float]:
    """Returns at most five round numbers from `low` to `high`."""
    power = 10.0 ** math.floor(math.log10(high - low))
    gap = power * next(factor for factor in (0.5, 1, 2, 5) if high - low <= 4 * factor * power)
    return [number * gap for number in range(math.ceil(low / gap), math.floor(high / gap) + 1)]


def draw_chart(title: str, curves: dict[str, Curve]) -> str:
    """Returns a figure with curves by step, and the last, least and greatest value of each by its metric's name."""
    lines = {name: curve.drawn() for name, curve in curves.items()}
    steps, values = zip(*(point for points in lines.values() for point in points), strict=True)
    first = min(steps)
    last = max(first + 1, *steps)
    margin = (max(values) - min(values)) * 0.05 or abs(max(values)) * 0.1 or 1
    low = min(values) - margin
    high = max(values) + margin

    def right(step: float) -> float:
        return (step - first) / (last - first)

    def down(value: float) -> float:
        return (high - value) / (high - low)

    legend = marks = ""
    for name, points in lines.items():
        kind = name.partition("/")[0]
        style = "eval" if kind == "eval" else "train"
        least, most = (format_number(f(points, key=operator.itemgetter(1))[1]) for f in (min, max))
        text = f"<b>{format_number(points[-1][1])}</b> <small>{least} to {most}</small>"
        legend += f'<span class="{style}" title="{html.escape(name)}">{html.escape(kind)} {text}</span>'
        places = [f"{SIZE * right(step):.0f} {SIZE * down(value):.0f}" for step, value in points]
        marks += f'<path class="{style}" d="M{"L".join(places)}"/>'
        if len(points) <= 40:  # few enough to point at
            for place, (step, value) in zip(places, points, strict=True):
                label = f"<title>step {step}: {format_number(value)}</title>"
                marks += f'<path class="{style} dot" d="M{place}h0">{label}</path>'
    rows = [(down(value), format_number(value)) for value in ticks(low, high)]
    columns = [(right(step), f"{step:,.0f}") for step in ticks(first, last) if step.is_integer()]
    grid = "".join(f"M0 {SIZE * place:.0f}h{SIZE}" for place, _ in rows)
    labels = "".join(f'<i class="row" style="top:{place:.1%}">{text}</i>' for place, text in rows)
    labels += "".join(f'<i class="column" style="left:{place:.1%}">{text}</i>' for place, text in columns)
    return (
        f"<figure><figcaption><h3>{html.escape(title)}</h3>{legend}</figcaption><div>"
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" aria-label="{html.escape(title)}">'
        f'<path class="grid" d="{grid}"/>{marks}</svg>{labels}</div></figure>\n'
    )


def draw_charts(curves: dict[str, Curve]) -> str:
    """Returns a chart for each metric, in which training and evaluation stand together: train/loss and eval/loss."""
    groups = collections.defaultdict[str, dict[str, Curve]](dict)
    for name, curve in curves.items():
        groups[name.partition("/")[2] or name][name] = curve
    titles = sorted(groups, key=lambda title: (title != "loss", title != "reward", title))
    return f'<div class="charts">{"".join(draw_chart(title, groups[title]) for title in titles)}</div>'
