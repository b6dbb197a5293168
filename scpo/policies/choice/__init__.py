"""The choice policy: it scores the commands that a prompt lists and draws one (DRRN, arXiv 1511.04636).

Half a million parameters, nearly all a table of feature embeddings, learn on a CPU in a minute what to do in games
that they never saw. It reads ``env.prompt=memory``; a response is one token, the number of the command.
"""
