"""The intermediate representation of translations: requests and answers free of any wire format.

Each family decodes its wire format into these values and encodes them into its wire format; no
family knows another. Imported by all families and by the code that joins them.
"""
