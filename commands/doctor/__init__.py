"""The checks of `doctor`. Each checks one thing and returns findings. Imported by commands."""
