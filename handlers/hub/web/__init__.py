"""The shared base of the Hub's modules: base classes of pages and endpoints, the store and its
threads, texts, parts of pages."""
