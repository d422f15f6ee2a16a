"""One user, for administrators: the page, invites, the form."""
