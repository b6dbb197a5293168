"""How far our estimators are from somebody's own code, over the rows where the question has an answer."""

import numpy as np

MODES = ("mean_std_norm", "mean_norm")
SMALLEST_STD = 1e-5
BOUND = {"float64": 1e-5, "float32": 5e-4}


def tokens(theirs, value_N, precision, length=3):
    """Token-level scores as verl has them: the row's value at its last token."""
    scores_NL = theirs.torch.zeros(len(value_N), length)
    scores_NL[:, -1] = theirs.torch.tensor(value_N.astype(precision))
    return scores_NL, theirs.torch.ones(len(value_N), length)


def spread(value_N, id_N):
    """The standard deviation of each row's group; groups of one are not normalised and count as spread."""
    std_N = np.ones(len(value_N))
    for group in set(id_N):
        rows = np.flatnonzero(np.asarray(id_N) == group)
        if len(rows) > 1:
            std_N[rows] = np.std(value_N[rows].astype(np.float64), ddof=1)
    return std_N


class Distance:
    """The largest difference over all rows that were compared."""

    def __init__(self, name, stack):
        self.name, self.precision, self.rows, self.largest = name, stack.precision, 0, 0.0

    def add(self, ours_N, theirs_N, kept_N=True):
        kept_N = np.broadcast_to(kept_N, ours_N.shape)
        self.rows += int(kept_N.sum())
        self.largest = max(self.largest, float(np.abs(ours_N - theirs_N)[kept_N].max(initial=0)))

    def report(self):
        """Print it for the record, and return it; too few rows would prove nothing."""
        print(f"{self.name:50} {self.precision} {self.rows:7} rows {self.largest:.1e}")  # noqa: T201 - the record
        return self.largest if self.rows > 1000 else np.inf
