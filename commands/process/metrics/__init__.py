"""Metrics between the processes: the memory in which a worker counts, and what a scrape prints.

Standard library and conf.metrics only: the supervisor imports it.
"""
