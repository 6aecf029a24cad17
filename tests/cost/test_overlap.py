"""What the host moves beside compute: both directions at once, the ends by themselves."""

from __future__ import annotations

import pytest

from abele.charge.overlap import Hidden


def test_a_turn_takes_the_longer_direction_and_the_ends_take_both():
    hidden = Hidden(loads=30.0) + Hidden(stores=10.0) + Hidden(loads=20.0)
    assert (hidden.turn, hidden.alone) == (50.0, 60.0)
    assert hidden.exposed(turn=80.0, count=4) == 60.0
    assert hidden.exposed(turn=20.0, count=4) == pytest.approx(60.0 + 4 * 30.0)
    assert Hidden().exposed(turn=0.0, count=9) == 0.0
