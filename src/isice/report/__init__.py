"""⑨ Reports: tables, pictures and a page, made from records alone. Nothing here imports torch."""

from .page import write_report
from .tables import Table, result_table

__all__ = ["Table", "result_table", "write_report"]
