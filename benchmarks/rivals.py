"""Compare prima with plain rules on the same frozen features: how far is it below the best of them?

    python benchmarks/first_lessons.py --features     # once: the features of every frame
    python benchmarks/rivals.py --sets core50 signs
    python benchmarks/rivals.py --rules prima ranpac --columns 10x1 10x2

The columns are those of first_lessons.py, the accuracy in % of single frames. *own* features are
the network's last ones, *all* are those of all places of prima. The *regret* of a column is the
accuracy of the best rival minus that of prima. The rivals see each frame once, in any order:

- `cosine`: the nearest class mean; `knn`: the nearest frame; both by the cosine
- `lda`, `lda all`: Gaussian classes with one covariance
- `ranpac`, `ranpac all`: ridge on random ReLU features, lambda chosen as its authors do (McDonnell
  et al., NeurIPS 2023); `acil`: the same with ACIL's fixed lambda (Zhuang et al., NeurIPS 2022)
- `fecam`: Gaussian classes with a covariance each (Goswami et al., NeurIPS 2023)
- `klda`: LDA on random Fourier features (Momeni et al., AAAI 2025)

Sums of N frames of dimension D are solved as N equations if N < D, which changes no answer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from first_lessons import Floats, Task, all_tasks, by_lessons, task_options

PROJECTION = 10_000  # random features of RanPAC and ACIL, 5,000 of KLDA
LAMBDAS = 10.0 ** np.arange(-8, 9)  # RanPAC's choice
ACIL_LAMBDA = 0.1
SHRINKAGE = 1e-2  # of LDA and KLDA, relative to the mean variance
FECAM_SHRINKAGE = 1.0  # gamma_1 = gamma_2, for pretrained networks
FECAM_POWER = 0.5  # of Tukey's transformation

# From taught features and their columns, and asked features, to the scores of the classes.
Rule = Callable[[Floats, Floats, Floats], Floats]


def one_hot(columns: Floats) -> Floats:
    found: Floats = (columns[:, None] == np.arange(columns.max() + 1)).astype(np.float64)
    return found


def class_means(z: Floats, columns: Floats) -> Floats:
    targets = one_hot(columns)
    found: Floats = targets.T @ z / targets.sum(0)[:, None]
    return found


def unit(z: Floats) -> Floats:
    found: Floats = z / np.linalg.norm(z, axis=1, keepdims=True).clip(1e-12)
    return found


def cosine(z: Floats, columns: Floats, asked: Floats) -> Floats:
    """cos(x - m, mu_c - m),  m the mean of the class means."""
    mu = class_means(z, columns)
    m = mu.mean(0)
    return unit(asked - m) @ unit(mu - m).T


def knn(z: Floats, columns: Floats, asked: Floats) -> Floats:
    """max_i cos(x, z_i) over the taught frames of the class."""
    alike = unit(asked) @ unit(z).T
    return np.stack([alike[:, columns == c].max(1) for c in range(columns.max() + 1)], axis=1)


def lda(z: Floats, columns: Floats, asked: Floats) -> Floats:
    """x^T P mu_c - mu_c^T P mu_c / 2,  P = inv(S + a I),  a = SHRINKAGE tr S / D

    With the N frames y around their class means, S = y^T y / N, and
    a P v = v - y^T inv(a N I + y y^T) y v.
    """
    mu = class_means(z, columns)
    m = mu.mean(0)
    y, mu, asked = z - mu[columns], mu - m, asked - m
    a = SHRINKAGE * float((y * y).sum()) / y.size + 1e-12
    inner = np.linalg.solve(y @ y.T + a * len(y) * np.eye(len(y)), y @ mu.T)
    pmu = (mu.T - y.T @ inner) / a
    found: Floats = asked @ pmu - (mu * pmu.T).sum(1) / 2
    return found


def relu_features(z: Floats) -> Floats:
    random = np.random.default_rng(0).standard_normal((z.shape[1], PROJECTION), np.float32)
    found: Floats = np.maximum(z.astype(np.float32) @ random, 0).astype(np.float64)
    return found


def ridge(h: Floats, columns: Floats, asked: Floats, choices: Floats) -> Floats:
    """x^T inv(H^T H + lambda I) H^T Y,  equal to  x^T H^T inv(H H^T + lambda I) Y.

    Of several lambdas, the one with the least squared error on a fifth of the frames is chosen.
    """
    targets = one_hot(columns)
    chosen = choices[0]
    if len(choices) > 1:
        order = np.random.default_rng(0).permutation(len(h))
        rest, held = order[: int(0.8 * len(h))], order[int(0.8 * len(h)) :]
        values, vectors = np.linalg.eigh(h[rest] @ h[rest].T)
        shown, right = h[held] @ h[rest].T @ vectors, vectors.T @ targets[rest]
        errors = [
            float(((shown / (values.clip(0) + choice) @ right - targets[held]) ** 2).mean())
            for choice in choices
        ]
        chosen = choices[int(np.argmin(errors))]
    gram = h @ h.T
    gram.reshape(-1)[:: len(h) + 1] += chosen
    found: Floats = asked @ (h.T @ np.linalg.solve(gram, targets))
    return found


def ranpac(z: Floats, columns: Floats, asked: Floats) -> Floats:
    return ridge(relu_features(z), columns, relu_features(asked), LAMBDAS)


def acil(z: Floats, columns: Floats, asked: Floats) -> Floats:
    return ridge(relu_features(z), columns, relu_features(asked), np.array([ACIL_LAMBDA]))


def fecam(z: Floats, columns: Floats, asked: Floats) -> Floats:
    """-(x - mu_c)^T inv(R_c) (x - mu_c),  R_c the correlations of class c after shrinkage,

    all in the features x^FECAM_POWER; shrinkage adds gamma_1 times the mean variance to the
    diagonal and gamma_2 times the mean covariance to the rest.
    """
    z, asked = (np.maximum(x, 0) ** FECAM_POWER for x in (z, asked))
    found = []
    for c in range(columns.max() + 1):
        own = z[columns == c]
        covariance = np.cov(own.T) if len(own) > 1 else np.zeros((z.shape[1],) * 2)
        diagonal = np.eye(len(covariance), dtype=bool)
        covariance = covariance + FECAM_SHRINKAGE * np.where(
            diagonal, covariance[diagonal].mean() + 1e-6, covariance[~diagonal].mean()
        )
        deviation = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(deviation, deviation)
        off = asked - own.mean(0)
        found.append(-(off * np.linalg.solve(correlation, off.T).T).sum(1))
    return np.stack(found, axis=1)


def klda(z: Floats, columns: Floats, asked: Floats) -> Floats:
    """LDA on sqrt(2 / M) cos(z W + b),  W ~ N(0, 1 / s^2),  s the median distance of two frames."""
    random = np.random.default_rng(0)
    some = z[random.permutation(len(z))[:200]]
    distances = np.linalg.norm(some[:, None] - some[None], axis=2)
    scale = float(np.median(distances[distances > 0]))
    w = random.standard_normal((z.shape[1], PROJECTION // 2)) / scale
    b = random.uniform(0, 2 * np.pi, PROJECTION // 2)
    h, asked = (np.sqrt(4 / PROJECTION) * np.cos(x @ w + b) for x in (z, asked))
    return lda(h, columns, asked)


RULES: dict[str, tuple[Rule, bool]] = {  # the rule, and whether it reads all places
    "cosine": (cosine, False),
    "knn": (knn, False),
    "lda": (lda, False),
    "lda all": (lda, True),
    "ranpac": (ranpac, False),
    "ranpac all": (ranpac, True),
    "acil": (acil, False),
    "fecam": (fecam, False),
    "klda": (klda, False),
}


def accuracy(name: str, task: Task) -> float:
    """Compute the accuracy of a rule on the test frames of taught classes."""
    tests = [(label, frames) for label, frames in task.tests if label in task.taught]
    labels = np.concatenate([np.full(len(frames), label) for label, frames in tests])
    asked = np.concatenate([frames for _, frames in tests])
    if name == "prima":
        scores = by_lessons(task, asked).scores
    else:
        rule, places = RULES[name]
        z = task.data.features[:, : None if places else task.data.backbone.sizes[0]]
        frames = np.concatenate([frames for _, frames in task.lessons])
        columns = np.concatenate(
            [np.full(len(frames), task.taught.index(label)) for label, frames in task.lessons]
        )
        scores = rule(z[frames].astype(np.float64), columns, z[asked].astype(np.float64))
    return 100 * float((np.asarray(task.taught)[scores.argmax(1)] == labels).mean())


def main() -> None:
    parser = task_options(__doc__, ["prima", *RULES])
    parser.set_defaults(features=False, device="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = all_tasks(args)
    print(f"| {args.size} px | {' | '.join(args.rules)} | regret | s |")
    print(f"|{'---|' * (len(args.rules) + 3)}")
    for column in args.columns or list(dict.fromkeys(task.column for task in tasks)):
        began = time.perf_counter()
        some = [task for task in tasks if task.column == column]
        means = {
            name: statistics.mean(accuracy(name, task) for task in some) for name in args.rules
        }
        rivals = [mean for name, mean in means.items() if name != "prima"]
        regret = f"{max(rivals) - means['prima']:.1f}" if "prima" in means and rivals else ""
        cells = " | ".join(f"{mean:.1f}" for mean in means.values())
        seconds = time.perf_counter() - began
        print(f"| {column} | {cells} | {regret} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
