"""The linear assignment problem: exact, by shortest augmenting paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FREE = -1  # the row of a column that none is assigned to


def best_assignment(weights: NDArray[np.float64]) -> list[int]:
    """Return the column assigned to each row of a square matrix.

    The sum of *weights* over all pairs is the maximum. Jonker and Volgenant's variant of the
    Hungarian method, O(n^3).

    >>> import numpy as np
    >>> best_assignment(np.array([[1.0, 5.0], [2.0, 8.0]]))
    [0, 1]
    """
    import numpy as np

    size = len(weights)
    cost = weights.max() - weights
    rows, columns = np.zeros(size), np.zeros(size + 1)
    row_of = np.full(
        size + 1, _FREE
    )  # the row that a column is taken by; the last one starts a path
    for row in range(size):
        row_of[size] = row
        current, reached = size, np.zeros(size + 1, dtype=bool)
        distance, before = np.full(size, np.inf), np.zeros(size, dtype=int)
        while row_of[current] != _FREE:
            reached[current] = True
            at = row_of[current]
            through = cost[at] - rows[at] - columns[:size]
            closer = ~reached[:size] & (through < distance)
            distance[closer], before[closer] = through[closer], current
            nearest = int(np.where(reached[:size], np.inf, distance).argmin())
            step = distance[nearest]
            rows[row_of[reached]] += step
            columns[reached] -= step
            distance[~reached[:size]] -= step
            current = nearest
        while current != size:
            row_of[current] = row_of[before[current]]
            current = before[current]
    return [int(column) for column in row_of[:size].argsort()]
