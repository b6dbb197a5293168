"""From run records to tables and figures: collect, statistics, one module for each output."""
