"""Backbones: MobileNet v1, EfficientNet-Lite0, or any module from images to features."""

from primavista.backbones.registry import Backbone, Spec, build

__all__ = ["Backbone", "Spec", "build"]
