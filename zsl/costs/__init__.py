"""What a run of dictionaries costs on this machine: constants that are measured once, and formulas over them."""
