"""Choice policy: it scores the commands that a prompt lists and draws one (DRRN, arXiv 1511.04636).

Half a million parameters, nearly all of them feature embeddings, learn on a CPU in a minute to win
games that they never saw. It reads ``env.prompt=memory``; a response is a single token, the number
of the command.
"""
