"""The command line, one module a noun. `app.py` imports the one that is called.

The supervisor's modules (supervisor, child, worker_state, ops_server, ops_answers, metrics,
listeners, node, logs) use only the standard library and conf, so that the first process of a
gateway stays small.
"""
