"""Train and test a config with several seeds: records of each seed, running them, and the table of results."""
from .records import SeedFolder, SeedResult
from .report import Summary, summarise, write_results

__all__ = ['SeedFolder', 'SeedResult', 'Summary', 'summarise', 'write_results']
