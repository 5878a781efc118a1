"""One module for each published format of data."""
