"""What a method, a benchmark and a panel are called in print, and how a method's line is drawn."""
