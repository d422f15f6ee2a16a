"""Parts of content blocks that both codecs of the family write or read."""
