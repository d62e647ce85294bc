import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PathCollection

from sds.plots import Kind
from sds.plots.draw import (
    COLOURS,
    COLUMN_INCHES,
    MOST_BARS,
    MOST_ROWS,
    OTHER_COLOUR,
    assigned,
    draw,
    rendered,
    shortened,
)
from sds.plots.figure_values import (
    coefficient_data,
    figure_data,
    predicted_data,
    residual_data,
    speedup_data,
)
from sds.recommender.models.cost_model import builtin_model
from tests.plots.evidence import ABOUT, SIMULATED, evidence, many


def texts(figure):
    found = [figure.get_suptitle(), figure.get_supxlabel()]
    for axes in figure.axes:
        found += [axes.get_xlabel(), axes.get_ylabel(), *(t.get_text() for t in axes.texts)]
        found += [t.get_text() for t in axes.get_yticklabels()]
    return "\n".join(found)


def points(axes):
    marks = [c for c in axes.collections if isinstance(c, PathCollection)]
    return np.concatenate([np.asarray(m.get_offsets()) for m in marks])


def keys(figure):
    return [t.get_text() for t in figure.legends[0].get_texts()]


def test_predicted_against_measured_shows_every_read_once():
    data = predicted_data(many(60))
    figure = draw(data)
    _, axes = figure.axes
    expected = sorted((p.observed_s, p.predicted_s) for p in data.points)
    assert sorted(map(tuple, points(axes))) == expected
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("measured time (s)", "predicted time (s)")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlim() == pytest.approx(axes.get_ylim())
    caption = figure.get_supxlabel()
    assert f"{data.n_not_near} outside 20 %" in caption
    assert f"{data.n_outside_interval} outside the 95 % interval" in caption.replace("\n", " ")
    assert "held out: each pattern predicted by a fit to the others" in caption
    assert {"equal", "within 20 %", "kind0", "layout 0,0,1"} <= set(keys(figure))
    assert (
        f"95 % interval (\N{MULTIPLICATION SIGN}/\N{DIVISION SIGN} {data.interval_factor:.3g})"
        in keys(figure)
    )


def test_residuals_are_shown_by_prediction_and_by_pattern():
    data = residual_data(many(60))
    figure = draw(data)
    _, above, below = figure.axes
    expected = sorted((p.predicted_s, np.exp(p.log_ratio)) for p in data.points)
    assert np.array(sorted(map(tuple, points(above)))) == pytest.approx(np.array(expected))
    assert above.get_xlabel() == "predicted time (s)"
    assert above.get_ylabel() == "measured / predicted"
    assert [t.get_text() for t in below.get_yticklabels()] == [r.pattern for r in data.patterns]
    assert "Predictions are held out" in figure.get_supxlabel()


def test_speedups_have_a_bar_measured_and_one_predicted():
    rows = [("line", "a", 8.0, 4.0), ("line", "b", 2.0, 2.0)]
    rows += [("plane", "a", 1.0, 1.0), ("plane", "b", 10.0, 5.0), ("plane", "c", 2.0, 4.0)]
    figure = draw(speedup_data(evidence(rows)))
    _, axes = figure.axes
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert ends == pytest.approx([4.0, 0.1, 0.5, 2.0, 0.2, 0.25]), "measured first, then predicted"
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "speed-up over layout a"
    assert [t.get_text() for t in axes.texts] == ["line  → b", "plane  → b", "plane  → c"]
    assert keys(figure) == ["measured", "predicted"]


def test_coefficients_are_a_table(measured):
    data = figure_data(Kind.COEFFICIENTS, measured, model="service")
    found = texts(draw(data))
    for row in data.terms:
        assert row.term in found
        assert row.unit in found
    assert "dropped" in found
    assert "weighting: log" in found
    assert "held out" not in found


@pytest.mark.parametrize("of", [predicted_data, residual_data, speedup_data])
def test_simulated_times_are_labelled_in_the_title_and_on_the_axes(of):
    simulated = draw(of(many(30, about=SIMULATED)))
    assert simulated.get_suptitle().endswith("(simulated)")
    shown = texts(simulated) + "\n".join(keys(simulated))
    assert "measured" not in shown
    assert shown.count("simulated") >= 2
    assert "simulated" not in texts(draw(of(many(30))))


def test_coefficients_fitted_to_simulated_times_say_so():
    data = coefficient_data(builtin_model(), SIMULATED)
    assert draw(data).get_suptitle() == "Coefficients (simulated)"


@pytest.mark.parametrize("n", [1, 2, 5000])
@pytest.mark.parametrize("of", [predicted_data, residual_data])
def test_from_one_read_to_thousands(of, n):
    assert rendered(draw(of(many(n))), "png").startswith(b"\x89PNG")


def test_reads_that_are_all_alike_are_drawn():
    rows = [("line", "a", 1.0, 1.0), ("line", "b", 1.0, 1.0)] * 2
    for of in (predicted_data, residual_data, speedup_data):
        figure = draw(of(evidence(rows, interval_log=0.0)))
        for axes in figure.axes[1:]:
            low, high = axes.get_xlim()
            assert low < 1.0 < high
        assert rendered(figure, "svg")


@pytest.mark.parametrize("of", [predicted_data, residual_data, speedup_data])
def test_nothing_sticks_out_of_a_column_however_long_names_are(of):
    long = "/a very long/path of a group/with $x_1$ & <tags>/of the dataset"
    data = of(many(300, groups=12, layouts=9, long=long))
    figure = draw(data)
    assert figure.get_figwidth() == pytest.approx(COLUMN_INCHES)
    figure.draw_without_rendering()
    whole = figure.bbox
    inside = [figure.legends[0].get_window_extent()]
    for axes in figure.axes[1:]:
        inside += [t.get_window_extent() for t in (*axes.texts, *axes.get_yticklabels())]
    for box in inside:
        assert whole.x0 - 1 <= box.x0
        assert box.x1 <= whole.x1 + 1
    legend, first = figure.legends[0].get_window_extent(), figure.axes[1].get_window_extent()
    assert legend.y0 >= first.y1 - 1, "the legend covers no data"
    ET.fromstring(rendered(figure, "svg"))  # noqa: S314 - we wrote it


def test_more_than_a_page_is_cut_and_said():
    data = many(1000, groups=5, layouts=2)
    residuals = draw(residual_data(data))
    assert len(residuals.axes[2].get_yticks()) == MOST_ROWS
    assert f"Shown are the {MOST_ROWS} of 500 patterns" in " ".join(
        residuals.get_supxlabel().split()
    )
    speedups = draw(speedup_data(data))
    assert len(speedups.axes[1].patches) == 2 * MOST_BARS
    assert f"Shown are the {MOST_BARS} of 500 patterns" in " ".join(
        speedups.get_supxlabel().split()
    )


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_same_data_give_the_same_bytes(form):
    data = predicted_data(many(40))
    first = rendered(draw(data), form)
    assert rendered(draw(data), form) == first
    assert rendered(draw(predicted_data(many(41))), form) != first
    assert mpl.__version__.encode() not in first
    assert not re.search(rb"20\d\d-\d\d-\d\d", first)


def test_text_of_an_svg_is_text():
    data = predicted_data(many(10))
    svg = rendered(draw(data), "svg").decode()
    assert re.search(r"<text[^>]*>predicted time \(s\)</text>", svg)


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(mpl.rcParams)
    rendered(draw(predicted_data(many(5))), "svg")
    assert dict(mpl.rcParams) == before


def test_frequent_names_get_colours_and_the_rest_share_one():
    names = [f"n{i}" for i in range(9) for _ in range(i + 1)]
    given = assigned(names, COLOURS, OTHER_COLOUR)
    assert [n for n, c in given.items() if c == OTHER_COLOUR] == ["n0", "n1", "n2"]
    assert len(set(given.values())) == len(COLOURS)
    few = assigned(["b", "a"], COLOURS, OTHER_COLOUR)
    assert few == {"a": COLOURS[0], "b": COLOURS[1]}


@pytest.mark.parametrize(
    ("name", "longest", "expected"),
    [
        ("short", 5, "short"),
        ("a  b\nc", 9, "a b c"),
        ("abcdefghij", 5, "ab…ij"),
        ("abcdef", 4, "ab…f"),
    ],
)
def test_long_names_lose_their_middle(name, longest, expected):
    assert shortened(name, longest) == expected


@pytest.mark.parametrize(
    "module", ["sds.plots.figure_values", "sds.server.api.application", "sds.cli.commands.plot"]
)
def test_only_drawing_imports_matplotlib(module):
    program = f"import sys, {module}; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_residual_figure_has_the_widest_interval_in_view():
    data = residual_data(many(20))
    wide = replace(data, interval_log=5.0)
    low, high = draw(wide).axes[1].get_ylim()
    assert low < np.exp(-5.0) < np.exp(5.0) < high


def test_the_provenance_is_in_every_caption():
    for of in (predicted_data, residual_data, speedup_data):
        caption = " ".join(draw(of(many(30))).get_supxlabel().split())
        assert caption.startswith(f"{ABOUT.subject}. Model: {ABOUT.model}.")
