"""One training with several seeds: records of what each has done, running them, and the table of their results."""
from .records import SeedFolder, SeedResult
from .report import Summary, summarise, write_results

__all__ = ['SeedFolder', 'SeedResult', 'Summary', 'summarise', 'write_results']
