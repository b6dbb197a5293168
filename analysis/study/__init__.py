"""The study's page: questions, and the numbers of runs that answer them."""
