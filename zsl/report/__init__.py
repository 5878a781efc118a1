"""Tables and figures made from the records of finished runs."""
