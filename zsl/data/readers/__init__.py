"""The readers: one module for each dataset or format, and the modules that they share."""
