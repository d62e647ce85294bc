"""Figures of what replicas gained."""

from sds.plots.draw import rendered
from sds.plots.gain_figures import (
    Estimate,
    ReadGain,
    ReplicaGainBar,
    draw_read_gains,
    draw_replica_gains,
)

FAST = Estimate(seconds=1e-3, low=9e-4, high=2e-3)
SLOW = Estimate(seconds=0.1, low=0.08, high=0.13)


def test_names_are_shown_whatever_bytes_they_have():
    gains = [
        ReadGain(label=name, original=SLOW, replica=FAST)
        for name in ("/x\udcff", "/$a_1$", "/<b>&", "long " * 50)
    ]
    text = rendered(draw_read_gains(gains), "svg").decode()
    for shown in ("/x\\udcff", "/$a_1$", "/&lt;b&gt;&amp;", "original", "replica"):
        assert shown in text


def test_what_was_lost_is_drawn_below_zero_beside_what_was_spent():
    lost = Estimate(seconds=-2.0, low=-3.0, high=-1.0)
    figure = draw_replica_gains(
        [
            ReplicaGainBar(label="replica 1 of /d, active", saved=SLOW, build_s=2.0),
            ReplicaGainBar(label="replica 2 of /d, reverted", saved=lost, build_s=1.0),
        ]
    )
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches] == [0.1, -2.0, 2.0, 1.0]
    assert axes.get_xlim()[0] < -3
    assert rendered(figure, "png").startswith(b"\x89PNG")
