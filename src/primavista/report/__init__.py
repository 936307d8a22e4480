"""Figures, tables and one HTML page from a folder of results."""

from primavista.report.write import write_report

__all__ = ["write_report"]
