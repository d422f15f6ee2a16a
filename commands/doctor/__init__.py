"""The checks of `doctor`: each looks at one thing and returns findings. Imported by commands."""
