"""What every room of the Hub stands on: the base of pages and endpoints, store and threads, words,
parts of pages. It imports none of the rooms."""
