"""Detection: checks of COCO files, and a small data set of coins."""
