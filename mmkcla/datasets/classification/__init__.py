"""Classification: the digits of scikit-learn."""
