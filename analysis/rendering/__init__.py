"""How tables and figures are set: LaTeX, Markdown, CSV, PDF and PNG with the same bytes for the same content."""
