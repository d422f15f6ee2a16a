"""The scripted vendor of generate_content."""
