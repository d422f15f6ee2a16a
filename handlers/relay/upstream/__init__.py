"""The upstream client: the pool of pycurl."""
