"""The Hub's HTTP server, and the limits of whoever has not signed in."""
