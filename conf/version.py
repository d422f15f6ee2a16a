"""The version of this program: one place, for commands, metrics and packages."""

VERSION = "0.1.0"
