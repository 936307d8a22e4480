"""Writes the files of this folder: learners of every strategy, made by version 0.1.0.

    python tests/legacy/make.py tests/legacy

It was run once, with version 0.1.0, and is kept to show how the files came about. Later versions
have to load these files and to continue them bit for bit, so it must not be run again with them.

Each variant learns three lessons, is saved, and learns two more. `facts.json` holds, for each, the
scores of one frame before and after, and SHA-256 digests of the arrays in the file that is saved at
the end: one for all of the backbone, one for the guard's importances, and one per other array.
Files that would hold the same arrays as another are not kept; their variants start from nothing.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load

from primavista import Learner

ANALYTIC = ("ncm", "lda", "ridge", "prima")
RELEASE = {"compat": "caffe", "first_batch": True}
VARIANTS: dict[str, dict[str, object]] = {
    "naive": {},
    "lwf": {},
    "ewc": {},
    "cwr+": {},
    "cwr*": {},
    "ar1": {},
    "ar1*": {},
    "latent-replay": {"memory": 12},
    "dslda": {},
    "ncm": {},
    "lda": {},
    "ridge": {},
    "prima": {},
    "cumulative": {},
    "ar1* caffe": RELEASE,
    "cwr* caffe": RELEASE,
    "ar1* past": {"past": 0.99},
    "dslda tune": {"tune": True, "first_batch": True},
    "ridge expand": {"expand": 16},
    "ar1* batch 1": {"first_batch": True},
    "ewc modulate": {"guard": "modulate"},
    "ar1 ratio": {"wpast": "ratio"},
    "ewc caffe": RELEASE,
    "lwf caffe": RELEASE,
    "naive caffe": RELEASE,
    "ar1* linear": {"head": "linear"},
    "ar1* bn": {"norm": "bn"},
    "dslda base": {"base_init": True},
    "lda shrinkage": {"shrinkage": 1e-3},
}
KEPT = list(VARIANTS)[:19]
BEFORE = ((0, "mug"), (1, "kettle"), (2, "mug"))
AFTER = ((3, "plate"), (4, "kettle"))
TOGETHER = ("backbone.", "importance.", "scratch.", "velocity.")


def frames(k: int, count: int = 6) -> np.ndarray:
    """Return the frames of lesson k: noise of which the brightness tells the lesson."""
    noise = np.random.default_rng(k).integers(0, 60, (count, 32, 32, 3))
    return (noise + 45 * k).astype(np.uint8)


def new_learner(key: str, **more: object) -> Learner:
    """Return a learner of a variant, with more options, that has learned nothing."""
    name = key.split(" ")[0]
    options = {**VARIANTS[key], **more}
    if name not in ANALYTIC:
        options["capacity"] = 6
    return Learner(
        name, weights="random", width=0.0625, size=32, device="cpu", engine="torch", **options
    )


def file_of(key: str) -> str:
    """Return the name of a variant's file."""
    plain = key.replace("*", "_star").replace("+", "_plus").replace(" ", "-")
    return f"{plain}.pv.xz"


def teach(learner: Learner, lessons: tuple[tuple[int, str], ...]) -> None:
    """Teach lessons, each a number and a label."""
    for k, label in lessons:
        learner.learn(frames(k), label)


def digest(content: bytes) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256 digest."""
    return hashlib.sha256(content).hexdigest()[:16]


def array_digests(path: Path) -> dict[str, str]:
    """Return digests of the arrays in a learner's file, those of undo apart.

    The arrays of a prefix in `TOGETHER` share one digest, over their names and contents.
    """
    arrays: Mapping[str, np.ndarray] = load(path.read_bytes())
    now = {name: arrays[name] for name in sorted(arrays) if not name.startswith("undo/")}
    found = {}
    for prefix in TOGETHER:
        names = [name for name in now if name.startswith(prefix)]
        content = b"".join(name.encode() + now.pop(name).tobytes() for name in names)
        if names:
            found[f"{prefix}*"] = digest(content)
    return found | {name: digest(array.tobytes()) for name, array in now.items()}


def machine() -> str:
    """Return a digest of sums whose order of additions depends on the processor and the library."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 16, 24, 24, generator=generator)
    weight = torch.randn(32, 16, 3, 3, generator=generator)
    y = torch.nn.functional.conv2d(x, weight, padding=1)
    wide = y.flatten(1).double() @ torch.randn(18432, 7, generator=generator).double()
    products = [
        y,
        y.flatten(1) @ y.flatten(1).T,
        wide,
        torch.linalg.solve(wide.T @ wide + torch.eye(7), wide.T),
    ]
    return digest(b"".join(product.numpy().tobytes() for product in products))


def main(folder: Path) -> None:
    """Write the files of all variants and `facts.json`."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path = folder / "learner.tmp"
    facts: dict[str, object] = {}
    for key in VARIANTS:
        learner = new_learner(key)
        teach(learner, BEFORE)
        learner.save(path)
        if key in KEPT:
            (folder / file_of(key)).write_bytes(lzma.compress(path.read_bytes(), preset=9))
        before = learner.predict(frames(1)[0])
        teach(learner, AFTER)
        learner.save(path)
        after = learner.predict(frames(1)[0])
        facts[key] = {
            "scores_before": before.scores,
            "scores_after": after.scores,
            "familiarity_after": after.familiarity,
            "arrays_after": array_digests(path),
        }
    path.unlink()
    content = {"torch": torch.__version__, "machine": machine(), "learners": facts}
    (folder / "facts.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
