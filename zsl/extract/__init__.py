"""Images to features."""
