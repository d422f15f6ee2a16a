"""The supervisor, the worker and the other processes of a node.

The supervisor's modules import only the standard library and conf.
"""
