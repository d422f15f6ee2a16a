"""The document of `apply`: reading, planning, applying, exporting it."""
