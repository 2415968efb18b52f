"""COCO annotation files: read, check and report.

``reader`` parses a file, ``table`` turns it into arrays and finds wrong types, ``cache`` keeps the arrays of large
files, ``faults`` and ``masks`` find what would make a result wrong, ``headers`` compares with the image files, and
``report`` puts it together.
"""
