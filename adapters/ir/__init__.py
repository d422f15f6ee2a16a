"""The intermediate representation of translations: requests and answers free of any wire format.

Each family decodes its wire into these values and encodes these values into its wire; no family
knows another. Imported by all families and by what joins them.
"""
