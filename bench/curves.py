"""How a cost grows with a size: the slope of its curve on log-log axes.

0 is flat, 1 grows with the size, 2 with its square.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def slope(points: Mapping[float, float]) -> float:
    """Return the least-squares slope of size -> cost, both as logarithms."""
    if len(points) < 2:
        raise ValueError("a slope needs two points")
    xs = [math.log(size) for size in points]
    ys = [math.log(cost) for cost in points.values()]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - middle_x) ** 2 for x in xs)
