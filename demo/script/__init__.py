"""What a request asks of the scripted vendor and what it says: shared by the families."""
