"""Backbones: MobileNet v1, EfficientNet-Lite0, ViT, or any module from images to features."""

from primavista.backbones.base import Backbone, Spec, build

__all__ = ["Backbone", "Spec", "build"]
