"""Descriptions of classes, as sentences or named attributes, to class rows: ``zsl describe``."""
