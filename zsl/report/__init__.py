"""Results for people: files, tables, figures."""
