"""LaTeX, Markdown, CSV, PDF and PNG; the same content gives the same bytes."""
