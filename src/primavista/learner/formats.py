"""The formats of `export`, which itself needs torch."""

from __future__ import annotations

from typing import Literal

Format = Literal["onnx", "portable"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "portable": ".portable.pv"}
