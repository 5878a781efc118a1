"""zsl: zero-shot image classification by coupled dictionary learning."""
__version__ = "0.1.0"
