"""The compiled parts of sparse coding."""
