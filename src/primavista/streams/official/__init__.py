"""Readers for the official files of other data sets: CIFAR-100, CLEAR-10 and others."""

from primavista.streams.official.cifar100 import cifar100
from primavista.streams.official.clear import clear
from primavista.streams.official.openloris import openloris
from primavista.streams.official.tiny_imagenet import tiny_imagenet

__all__ = ["cifar100", "clear", "openloris", "tiny_imagenet"]
