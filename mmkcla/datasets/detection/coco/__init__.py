"""COCO annotation files: read, check and report.

``reader`` parses a file, ``keys`` finds repeated keys, ``table`` turns it into arrays and finds wrong types, ``cache``
keeps the arrays of large files, ``faults``, ``geometry``, ``masks`` and ``runs`` find what would make a result wrong,
``headers`` compares with the image files, and ``report`` puts it together.
"""
