"""Facts in, text out: every page, table and document. Nothing here reads a host, a clock or a file."""
