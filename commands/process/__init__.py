"""Supervisor and worker. The supervisor's modules use the standard library and conf only."""
