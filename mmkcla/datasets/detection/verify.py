"""Reports on COCO files for ``mmkcla data verify``."""
