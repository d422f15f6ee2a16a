"""The upstream client: the home of pycurl."""
