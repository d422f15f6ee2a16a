"""The upstream client, on pycurl, and its pool of connections."""
