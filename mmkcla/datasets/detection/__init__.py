"""Detection: checks of COCO files, and a data set made of a photograph of coins."""
