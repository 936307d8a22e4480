"""The ridge regression of one place, and its leave-one-out scores.

`fit_place` fits one linear classifier to the features of one place, from sums over lessons. To
find out how far the classifier can be trusted, `left_out_scores` computes the scores that it would
give to a lesson if it had not seen that lesson, and `strange_scores` those if it had not seen the
class of the lesson. Both follow from the fit by low-rank updates, so nothing is fitted again.
Everything is written for numpy and torch arrays alike.
"""

from __future__ import annotations

from typing import NamedTuple

from primavista.arrays import (
    Array,
    array_namespace,
    float64,
    identity,
    to_library_of,
    zeros_like,
)
from primavista.heads.solving import solve_rows
from primavista.heads.strangers import Integers

LEVEL = 0.1  # rho is this fraction of the variance tr C that one lesson of L contributes
ROUNDING = 1e-7  # bound on the rounding error of an eigenvalue of G, relative to tr G


class Lessons(NamedTuple):
    """L lessons of a sample, each with its class, its mean and one of its frames.

    Args:
        columns: The column of the class of each lesson, in numpy.
        means: The mean features of each lesson, L x D.
        frames: The features of one frame of each lesson, L x D.
    """

    columns: Integers
    means: Array
    frames: Array

    def part(self, features: slice) -> Lessons:
        """Return the same lessons, restricted to a slice of the features, in float64."""
        return Lessons(
            self.columns, float64(self.means[:, features]), float64(self.frames[:, features])
        )


class PlaceFit(NamedTuple):
    """The ridge regression of one place, and its leave-one-out scores.

    Args:
        w: Its weights, K x D.
        b: Its offsets, K.
        left_out: The scores of one frame of each lesson by the regression on all other lessons,
            L x K. A lesson that is the only one of its class is not among the L lessons.
    """

    w: Array
    b: Array
    left_out: Array


def fit_place(
    n: Array, s: Array, gram: Array, t: float, lessons: Lessons, generic: Array
) -> PlaceFit:
    """w_c = inv(C + rho I) (mu_c - m) / K,  C = S / t + sum_c (mu_c - m)(mu_c - m)^T / K,

    S = G - sum_c s_c s_c^T / n_c,  rho = LEVEL tr C / L

    This is the ridge regression of y_c - 1 / K on z - m in which every class has the same weight.
    mu_c is the mean of the lessons of class c, m is the mean of all mu_c, S is the scatter of the
    frames around mu_c, and L is the number of lessons. The features are not standardised, because
    a feature that hardly varied in a few lessons may vary in the next one.

    The scores are w (z - o); `origin_of_scores` defines the origin o.

    Args:
        n: The number of lessons of each class, K.
        s: The sum of the means of these lessons, K x D.
        gram: G, D x D. Only its lower triangle is read; the array is overwritten.
        t: The number of lessons in G.
        lessons: The lessons to leave out one by one, in float64.
        generic: g, the mean features of frames of arbitrary objects, D; zeros if unknown.

    Returns:
        The weights, the offsets and the leave-one-out scores.
    """
    classes, dim = s.shape
    mu = s / n.clip(1)[:, None]
    m = mu.mean(0)
    offset = mu - m
    if classes == 1:
        return PlaceFit(offset * 0, n * 0, zeros_like((len(lessons.means), 1), s))
    xp, t = array_namespace(s), max(t, 1.0)
    tc = gram  # t C = G + sum_c (t / K - n_c) mu_c mu_c^T - t m m^T
    tc += xp.concat([(t / classes - n)[:, None] * mu, -t * m[None]]).T @ xp.concat([mu, m[None]])
    rho = LEVEL * float(tc.trace()) / t / max(float(n.sum()), 1)
    rho += ROUNDING * float((mu * mu).sum(1).mean()) + 1e-30  # if all frames are equal
    tc.reshape(-1)[:: dim + 1] += t * rho  # the diagonal
    x = lessons.means - m
    solved = solve_rows(tc, xp.concat([offset * (t / classes), x * t]))
    w, px = solved[:classes], solved[classes:]
    columns = to_library_of(lessons.columns, s)
    o, kappa = origin_of_scores(n, m, generic)
    z = lessons.frames - o
    left_out = left_out_scores(w, offset, columns, n[columns], t, x, px, z, kappa)
    return PlaceFit(w, -(w * o).sum(1), left_out)


def origin_of_scores(n: Array, m: Array, generic: Array) -> tuple[Array, float]:
    """o = (1 - kappa) m + kappa g,  kappa = K / (K + L):  all classes score 0 at o.

    After one lesson per class, a class whose only lesson resembles most objects gets high scores
    for almost any frame from another room. Moving the origin towards g, the mean of frames of
    arbitrary objects, lowers the scores of such classes. g counts like one more lesson of each
    class, so its influence decreases with every lesson.

    Args:
        n: The number of lessons of each class, K.
        m: The mean of the class means, D.
        generic: g, D; zeros if unknown, in which case o = m.

    Returns:
        o and kappa.
    """
    if not bool(generic.any()):
        return m, 0.0
    kappa = len(n) / (len(n) + float(n.sum()))
    return m + kappa * (generic - m), kappa


def left_out_scores(
    w: Array,
    offset: Array,
    columns: Array,
    n: Array,
    t: float,
    x: Array,
    px: Array,
    z: Array,
    kappa: float,
) -> Array:
    """Score a frame of each lesson by the same regression on all other lessons.

    Let x be the mean of the lesson, d = x - mu_c, e = mu_c - m and a = 1 / (n_c - 1). Without the
    lesson, the mean of its class c is mu_c - a d, and the mean of all classes is m - a d / K.
    S loses (1 + a) d d^T; the scatter within the lesson stays in S, and t, rho and kappa are
    unchanged. C therefore changes by F M F^T, with F = [d e] and

    M = [[(1 - 1 / K) a^2 / K - (1 + a) / t, -a / K], [-a / K, 0]].

    By the Woodbury identity, P = inv(C + rho I) changes by -P F N F^T P, with G = F^T P F and
    N = inv(I + M G) M.

    Args:
        w: The weights of the regression on all lessons, K x D.
        offset: mu_k - m of each class, K x D.
        columns: The column of the class of each lesson.
        n: n_c, the number of lessons of the class of each lesson, at least 2.
        t: The number of lessons in S.
        x: The mean of each lesson, minus m, L x D.
        px: P x, L x D.
        z: A frame of each lesson, minus the origin o, L x D.
        kappa: The weight of the generic frames in o.

    Returns:
        The scores, L x K.
    """
    classes = len(w)
    a = 1 / (n - 1)
    e, pe = offset[columns], classes * w[columns]
    d, pd = x - e, px - pe
    dd, de, ee = ((u * v).sum(1) for u, v in ((d, pd), (d, pe), (e, pe)))  # G
    m_dd, m_de = (1 - 1 / classes) / classes * a * a - (1 + a) / max(t, 1), -a / classes
    reduced = m_dd - m_de * m_de * ee
    det = ((1 + m_de * de) ** 2 + dd * reduced).clip(1e-9)  # det(I + M G) > 0
    n_dd, n_de, n_ee = reduced / det, m_de * (1 + m_de * de) / det, -m_de * m_de * dd / det
    z = z + ((1 - kappa) * a / classes)[:, None] * d
    zd, ze = (z * pd).sum(1), (z * pe).sum(1)  # F^T P z
    vd, ve = n_dd * zd + n_de * ze, n_de * zd + n_ee * ze
    scores = z @ w.T - vd[:, None] * (d @ w.T) - ve[:, None] * (offset @ w.T)[columns]
    along = a * (zd - dd * vd - de * ve) / classes  # a d^T P z / K, P without the lesson
    return scores - along[:, None] * (identity(classes, w)[columns] - 1 / classes)


def strange_scores(w: Array, offset: Array, columns: Array, z: Array, kappa: float) -> Array:
    """Score a frame of each lesson by the same regression without the class of the lesson.

    Let e = mu_c - m and a = 1 / (K - 1). Without class c, the mean of the other classes is m - a e
    and C loses a e e^T; S, rho, kappa and the weight 1 / K of each other class are unchanged. With
    P = inv(C + rho I) and y = z + (1 - kappa) a e, the scores are

    y^T P v / K + y^T P e e^T P v a / (1 - a e^T P e) / K,  v = mu_k - m + a e.

    Args:
        w: The weights of the regression on all classes, K x D.
        offset: mu_k - m of each class, K x D.
        columns: The column of the class of each lesson.
        z: A frame of each lesson, minus the origin o, L x D.
        kappa: The weight of the generic frames in o.

    Returns:
        The scores, L x K; the score of a lesson for its own class is meaningless.
    """
    classes = len(w)
    a = 1 / max(classes - 1, 1)
    a_y = (1 - kappa) * a
    zp, ep = z @ w.T, (offset @ w.T)[columns]  # z^T P (mu_k - m) / K, e^T P (mu_k - m) / K
    own = float64(identity(classes, w)[columns])
    ze, ee = ((x * own).sum(1)[:, None] for x in (zp, ep))  # z^T P e / K, e^T P e / K
    ye, ev = ze + a_y * ee, ep + a * ee
    yv = zp + a_y * ep + a * ye
    return yv + ye * ev * (a * classes / (1 - a * classes * ee).clip(1e-9))
