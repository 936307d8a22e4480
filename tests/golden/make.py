"""Writes the golden files.

Run once for each format, with the version that introduces it, and never again.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from primavista import Learner

torch.set_num_threads(1)
HERE = Path(__file__).parent
STRATEGIES = {"cwr_star": "cwr*", "ar1_star": "ar1*", "dslda": "dslda", "prima": "prima"}
IMAGE = (np.arange(32 * 32 * 3).reshape(32, 32, 3) * 7 % 256).astype(np.uint8)

if __name__ == "__main__":
    for name, strategy in STRATEGIES.items():
        learner = Learner(
            strategy, weights="random", width=0.0625, size=32, device="cpu", engine="torch"
        )
        for k, label in enumerate(["mug", "kettle", "тарелка"]):
            noise = np.random.default_rng(k).integers(0, 60, (5, 32, 32, 3))
            before = learner.labels
            learner.learn((noise + 60 * k).astype(np.uint8), label)
        learner.save(HERE / f"{name}.pv")
        facts = {"labels": learner.labels, "counts": learner.counts, "labels_before": before}
        facts["scores"] = learner.predict(IMAGE).scores
        (HERE / f"{name}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
