"""Readers for the official files of other data sets: CIFAR-100, CLEAR-10 and more."""

from primavista.streams.official.cifar100 import cifar100

__all__ = ["cifar100"]
