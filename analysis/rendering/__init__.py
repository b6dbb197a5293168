"""Render LaTeX, Markdown, CSV, PDF and PNG; equal content gives equal bytes."""
