"""⑨ Reports: tables, figures and pages, from records alone, without importing torch."""

from .report_page import write_report
from .tables import Table, result_table

__all__ = ["Table", "result_table", "write_report"]
